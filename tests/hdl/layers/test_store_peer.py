# amaranth: UnusedElaboratable=no
"""The store's AXI4 port against a third party's memory (cocotbext-axi), on the emitted Verilog."""

import pytest

from fanin.hdl.layers.store import Store
from tests.hdl.layers.cocotb_store import CONFIG
from tests.peers import run_cocotb
from tests.support import new_seed


@pytest.mark.slow
@pytest.mark.verilator
def test_cocotbext_axi_keeps_what_the_store_writes(tmp_path):
    run_cocotb(Store(config=CONFIG), "tests.hdl.layers.cocotb_store", tmp_path, seed=new_seed())
