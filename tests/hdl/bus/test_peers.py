# amaranth: UnusedElaboratable=no
"""The AXI ports against a third party's models (cocotbext-axi), on the emitted Verilog."""

import pytest

from fanin.hdl.bus.axi_writer import AxiWriter
from tests.hdl.bus.reader_with_registers import ReaderWithRegisters
from tests.peers import run_cocotb
from tests.support import new_seed, slow


@pytest.mark.verilator
@pytest.mark.parametrize(
    ("component", "module"),
    [(ReaderWithRegisters, "cocotb_peers"), *slow((AxiWriter, "cocotb_writer"))],
    ids=["reader and registers", "writer"],
)
def test_cocotbext_axi_reads_writes_and_serves(component, module, tmp_path):
    run_cocotb(component(), f"tests.hdl.bus.{module}", tmp_path, seed=new_seed())
