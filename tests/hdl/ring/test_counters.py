"""Counters of the ring's nodes and of INCEPTIONN's NIC: none wraps within a day at full rate."""

import pytest

from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.bus.register_map import WORD_BITS, Access
from fanin.hdl.codec.nic.registers import nic_registers
from fanin.hdl.ring.registers import MAX_POSTED, ring_nic_registers, ring_registers
from fanin.ring.facts import RingConfig

DAY_SECONDS = 24 * 60 * 60
MAPS = {
    "ring": ring_registers(RingConfig()),
    "smart NIC": ring_nic_registers(RingConfig()),
    "INCEPTIONN's NIC": nic_registers(),
}


@pytest.mark.parametrize("name", MAPS)
def test_no_counter_wraps_within_a_day_of_the_largest_step_in_every_cycle(name):
    counters = [each for each in MAPS[name].registers if each.access is Access.COUNTER]
    assert len(counters) >= 10
    for counter in counters:
        a_second = ((1 << counter.step) - 1) * CLOCK_MHZ * 1e6
        assert (1 << counter.bits) / a_second > DAY_SECONDS, counter.name


def test_counts_of_a_job_end_before_they_wrap():
    """``posted`` is refused beyond its last value, ``refused`` stays there, ``completed`` follows it."""
    for name in "posted", "completed", "refused":
        assert (1 << MAPS["ring"][name].bits) - 1 == MAX_POSTED == (1 << WORD_BITS) - 1
