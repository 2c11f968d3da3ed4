# amaranth: UnusedElaboratable=no
"""The clocks and delays that a Genesys 2's cells can make."""

from fractions import Fraction

import pytest

from fanin.hdl.boards.vendor.series7 import (
    QUARTER_NS,
    TAP_NS,
    VCO_MHZ,
    Series7RgmiiPins,
    choose_dividers,
    delay_taps,
)


@pytest.mark.parametrize(("core", "reached"), [(100, 100), (99, Fraction(1000, 11)), (130, 125), (250, 250)])
def test_the_core_is_as_fast_as_it_may(core, reached):
    dividers = choose_dividers(200, core)
    assert dividers.core_mhz == float(reached)
    assert VCO_MHZ[0] <= dividers.vco_mhz <= VCO_MHZ[1]
    assert Fraction(200) * dividers.feedback / dividers.input == dividers.vco_mhz
    assert (dividers.vco_mhz / dividers.tx, dividers.vco_mhz / dividers.reference) == (125, 200)


def test_an_oscillator_that_makes_no_125_mhz():
    with pytest.raises(ValueError, match="no MMCM setting gives 125 MHz"):
        choose_dividers(33.3, 100)


def test_a_delay_is_in_taps():
    assert [delay_taps(n * TAP_NS) for n in (0, 1, 31)] == [0, 1, 31]
    assert delay_taps(2.0) == 26
    for delay in (-0.1, 2.6):
        with pytest.raises(ValueError, match="delay must be 0 to"):
            delay_taps(delay)


def test_the_transmit_clock_is_shifted_by_a_quarter_or_not_at_all():
    assert QUARTER_NS == 2.0
    for delay in (0, QUARTER_NS):
        Series7RgmiiPins(port=None, rx_delay_ns=0, tx_delay_ns=delay)
    with pytest.raises(ValueError, match="tx_delay_ns must be 0 or 2"):
        Series7RgmiiPins(port=None, rx_delay_ns=0, tx_delay_ns=1.0)
