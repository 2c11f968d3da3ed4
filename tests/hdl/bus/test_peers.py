"""The AXI ports against a third party's models (cocotbext-axi), on the emitted Verilog."""

import pytest

from tests.hdl.bus.reader_with_registers import ReaderWithRegisters
from tests.peers import run_cocotb
from tests.support import new_seed


@pytest.mark.verilator
def test_cocotbext_axi_reads_writes_and_serves(tmp_path):
    run_cocotb(ReaderWithRegisters(), "tests.hdl.bus.cocotb_peers", tmp_path, seed=new_seed())
