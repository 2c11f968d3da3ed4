"""No counter of a node wraps within a day, nor within a century; rounds stop the job instead."""

import pytest

from fanin.base.limits import CLOCK_MHZ
from fanin.glm.facts import PRESETS
from fanin.hdl.aggregation.job import ROUND_BITS
from fanin.hdl.bus.register_map import Access
from fanin.hdl.glm.node_registers import node_registers

CENTURY = 100 * 365 * 86_400  # seconds
HZ = CLOCK_MHZ * 1e6


def seconds_to_wrap(*, bits: int, most: int) -> float:
    """Time until a counter that adds at most ``most`` in every cycle wraps."""
    return 2.0**bits / most / HZ


@pytest.mark.parametrize("preset", list(PRESETS))
def test_no_counter_wraps_within_a_century_at_full_rate(preset):
    counters = [r for r in node_registers(PRESETS[preset]).registers if r.access is Access.COUNTER]
    assert counters
    for register in counters:
        most = (1 << register.step) - 1
        assert seconds_to_wrap(bits=register.bits, most=most) > CENTURY, register.name


def test_rounds_last_as_long_as_the_page_says_and_do_not_wrap():
    """docs/systems/glm.md, "Counters"; test_transport has the stop with ROUND_WRAP."""

    def seconds(slots: int, cycles: int) -> float:
        return seconds_to_wrap(bits=ROUND_BITS, most=1) * slots * cycles

    assert seconds(1, 1) == pytest.approx(17, rel=0.02)
    assert seconds(256, 400) / 86_400 == pytest.approx(20, rel=0.03)
    assert seconds(256, 2) / 3600 == pytest.approx(2.4, rel=0.03)
