# amaranth: UnusedElaboratable=no
"""Two MACs whose four clocks differ, in Verilator: every frame goes there and comes back."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fanin.hdl.emission import kept_verilog
from fanin.hdl.net.ethernet.mac import EthernetMac, MacEvents
from fanin.sim.cosim.build import EXECUTABLE, build
from tests.support import new_seed

LONGEST = 1996
LINE = 8_000_000  # fs
HUNDRED_PPM = LINE // 10_000
#: A's core, B's core, A's line, B's line.
CLOCKS = (10_000_000, 19_937_000, LINE - HUNDRED_PPM, LINE + HUNDRED_PPM)


def go_and_return(frames, clocks, seed):
    """What A has counted, and what B has; AssertionError for a frame that was changed or lost."""
    main = Path(__file__).with_name("mac_pair.cpp").read_text()
    built = build(
        {"top.v": kept_verilog(EthernetMac(), name="top"), "main.cpp": main}, own_main=True, quiet=True
    )
    command = [built / EXECUTABLE, *map(str, (seed, frames, LONGEST, *clocks))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    size = len(MacEvents.members)
    assert [name for name, _ in lines] == 2 * [*MacEvents.members]
    return [Counter({name: int(n) for name, n in part if n != "0"}) for part in (lines[:size], lines[size:])]


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("clocks", [CLOCKS, CLOCKS[1::-1] + CLOCKS[:1:-1]], ids=["faster there", "faster back"])
def test_a_million_frames_go_and_return_with_clocks_200_ppm_apart(clocks):
    frames = 500_000  # two ways, two cases
    for counted in go_and_return(frames, clocks, new_seed()):
        assert counted == {"sent": frames, "received": frames}
