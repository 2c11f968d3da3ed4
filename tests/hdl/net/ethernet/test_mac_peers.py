"""The MAC against a third party's GMII (cocotbext-eth) and packets (scapy), on the emitted Verilog."""

import pytest

from tests.hdl.net.ethernet.mac_echo import MacEcho
from tests.peers import run_cocotb
from tests.support import new_seed


@pytest.mark.slow
@pytest.mark.verilator
def test_cocotbext_eth_and_scapy_get_their_frames_back(tmp_path):
    run_cocotb(MacEcho(), "tests.hdl.net.ethernet.cocotb_mac", tmp_path, seed=new_seed())
