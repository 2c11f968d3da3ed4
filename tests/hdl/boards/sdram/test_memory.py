# amaranth: UnusedElaboratable=no
"""SdramMemory: litedram's core between our ports and a model of the chips, in Verilator."""

import pytest

from fanin.boards.sdram import SDRAM_4M, SDRAM_8M
from tests.hdl.boards.sdram.chips import PortsWithChips, ReadersWithChips, verilog
from tests.peers import run_cocotb
from tests.support import new_seed

pytestmark = [
    pytest.mark.slow,  # a minute of yosys and Verilator
    pytest.mark.verilator,
    pytest.mark.needs("litedram"),
]
SAMPLES, LABELS, _ = SDRAM_4M.split(2, 0)
MEMORIES = ((SAMPLES, 32), (SAMPLES, 8), (LABELS, 32))


@pytest.mark.parametrize("sdram", [SDRAM_8M, SDRAM_4M], ids=lambda sdram: sdram.name)
def test_third_party_masters_read_what_the_hosts_write(sdram, tmp_path):
    top = PortsWithChips(sdram, MEMORIES)
    run_cocotb(top, "tests.hdl.boards.sdram.cocotb_ports", tmp_path, seed=new_seed(), more=verilog(sdram, 3))


def test_a_set_larger_than_a_megabit_comes_at_the_rate_that_is_documented(tmp_path):
    samples, labels, _ = SDRAM_8M.split(2, 0)
    top = ReadersWithChips(SDRAM_8M, [(samples, 32), (samples, 32), (labels, 32)])
    run_cocotb(
        top, "tests.hdl.boards.sdram.cocotb_readers", tmp_path, seed=new_seed(), more=verilog(SDRAM_8M, 3)
    )
