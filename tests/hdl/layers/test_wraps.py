# amaranth: UnusedElaboratable=no
"""Counters that a host reads do not wrap within a day, whatever they count comes in every cycle."""

import pytest

from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.boards.registers import board_registers
from fanin.hdl.bus.register_map import Access
from fanin.hdl.layers import network_port, watch
from fanin.hdl.layers.network_port import MAX_CONNECTIONS, EndShape, NetworkPort
from fanin.hdl.layers.registers import cluster_registers
from fanin.hdl.layers.watch import Watch
from fanin.hdl.param_server.registers import param_server_registers
from fanin.hdl.param_server.server import ParamServer
from fanin.rdma.facts import PRESETS

DAY = 24 * 60 * 60  # seconds
TINY = PRESETS["tiny"]
MAPS = {
    "cluster": cluster_registers(),
    "param_server": param_server_registers(TINY),
    "board": board_registers(),
}


def seconds_to_wrap(bits, step=1):
    """Of a counter to which the largest number of ``step`` bits is added in each cycle."""
    return 2**bits / ((2**step - 1) * CLOCK_MHZ * 1e6)


@pytest.mark.parametrize("name", MAPS)
def test_no_counter_of_a_register_map_wraps_within_a_day(name):
    counters = [register for register in MAPS[name].registers if register.access is Access.COUNTER]
    assert counters
    for register in counters:
        assert seconds_to_wrap(register.bits, register.step) > DAY, register.name


def test_no_counter_of_a_stream_or_a_connection_wraps_within_a_day():
    """They are read in two words, through a register that selects them."""
    for bits in (watch.COUNTER_BITS, network_port.COUNTER_BITS):
        assert seconds_to_wrap(bits) > DAY
    dut = Watch(lanes=1, transfers=1)
    assert {len(cycles) for cycles in (dut.busy, dut.starved, dut.blocked)} == {watch.COUNTER_BITS}
    port = NetworkPort(ends=(EndShape(1, 1, 1),) * MAX_CONNECTIONS)
    words = network_port.HIGH_WORD + len(network_port.LINK_COUNTERS)
    assert words <= 1 << network_port.LINK_WORD_BITS == len(range(2 ** len(port.index))) // MAX_CONNECTIONS


def test_the_sum_of_staleness_outlives_all_versions():
    """Versions end at 2^32; each update adds less than a version."""
    server = ParamServer(config=TINY)
    assert len(server.staleness) == 2 * len(server.version) == 2 * len(server.stalest)


def test_thirty_two_bits_wrap_within_a_minute():
    assert seconds_to_wrap(32) < 60
