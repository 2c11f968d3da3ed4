"""The NIC between a third party's stream and bus models (cocotbext-axi), on the emitted Verilog."""

import pytest

from fanin.hdl.codec.nic.nic import InceptionnNic
from tests.peers import run_cocotb
from tests.support import new_seed


@pytest.mark.slow
@pytest.mark.verilator
def test_frames_go_over_the_wire_and_come_back(tmp_path):
    run_cocotb(InceptionnNic(), "tests.hdl.codec.cocotb_nic", tmp_path, seed=new_seed())
