"""``fanin board simulate --tap``: the system's own ``ping`` and ``arping``, unmodified, reach a board."""

import json
import re

import pytest

from fanin.cli.main import main
from tests.sim.boards.test_world import in_namespace

BOARD, MAC, NOBODY = "10.0.0.1", "02:00:00:00:00:01", "10.0.0.9"
COUNT = 3
PING = f"ping -n -c {COUNT} -i 0.2 -W 5"
SIZES = (0, 1, 56, 1472)  # bytes of an echo request, up to the longest frame

IN_A_NAMESPACE = """
import json, subprocess, sys
def run(command, **options):
    return subprocess.run(command.split(), text=True, timeout=60, **options)
run("ip link set lo up", check=True)
simulate = [sys.executable, "-m", "fanin", "board", "simulate", sys.argv[1], "--source", "--tap", "fanin0"]
with subprocess.Popen(simulate, stdout=subprocess.PIPE) as board:
    try:
        assert board.stdout.readline(), "it has ended"
        for command in ("addr add 10.0.0.200/24", "link set up"):
            run(f"ip {command} dev fanin0", check=True)
        said = [run(command, stdout=subprocess.PIPE) for command in sys.argv[2:]]
        print(json.dumps([(one.returncode, one.stdout) for one in said]))
    finally:
        board.terminate()
"""


@pytest.mark.slow  # the RTL of a shell becomes a simulator, a minute
@pytest.mark.verilator
@pytest.mark.needs("ping", "arping", "tap")
def test_ping_and_arping_reach_a_simulated_board(tmp_path):
    folder = str(tmp_path / "shell")
    assert main(["board", "build", "colorlight_5a75b", "--node", "shell", "--no-place", "-o", folder]) == 0
    pings = [f"{PING} -s {size} {BOARD}" for size in SIZES]
    commands = [f"arping -c {COUNT} -I fanin0 {BOARD}", *pings, f"{PING} -W 1 {NOBODY}"]
    arp, *answered, nobody = json.loads(in_namespace(IN_A_NAMESPACE, folder, *commands))
    assert arp[0] == 0
    assert len(re.findall(MAC, arp[1], re.IGNORECASE)) == COUNT
    for size, (status, said) in zip(SIZES, answered, strict=True):
        assert (status, said.count(f"{size + 8} bytes from {BOARD}")) == (0, COUNT), said
        assert f"{COUNT} packets transmitted, {COUNT} received" in said
    assert nobody[0] == 1
    assert "0 received" in nobody[1]
