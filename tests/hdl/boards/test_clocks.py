"""The dividers of the PLL keep to its limits, and the core is as fast as they allow."""

from fractions import Fraction

import pytest

from fanin.hdl.boards.clocks import (
    DIVIDERS,
    MAX_OUTPUT_MHZ,
    PHASE_MHZ,
    TX_MHZ,
    VCO_MHZ,
    choose_dividers,
)

OSCILLATORS = (25, 30, 100, 125)  # of the boards, and one more


@pytest.mark.parametrize("oscillator", OSCILLATORS)
@pytest.mark.parametrize("core", [33, 50, 62.5, 75, 99.9, 100])
def test_every_clock_keeps_to_its_limit(oscillator, core):
    found = choose_dividers(oscillator, core)
    phase = Fraction(oscillator) / found.input
    assert PHASE_MHZ[0] <= phase <= PHASE_MHZ[1]
    assert phase * found.feedback * found.loop == found.vco_mhz
    assert VCO_MHZ[0] <= found.vco_mhz <= VCO_MHZ[1]
    assert found.vco_mhz / found.loop <= MAX_OUTPUT_MHZ
    assert found.vco_mhz / found.tx == TX_MHZ
    assert 0 < found.core_mhz <= core
    assert {found.input, found.feedback, found.loop, found.tx, found.core} <= set(DIVIDERS)


@pytest.mark.parametrize("oscillator", OSCILLATORS)
@pytest.mark.parametrize("core", [50, 62.5, 75, 100])
def test_a_core_clock_that_exists_is_met_exactly(oscillator, core):
    assert choose_dividers(oscillator, core).core_mhz == core


def test_an_oscillator_that_cannot_make_125_mhz_is_refused():
    with pytest.raises(ValueError, match=r"no PLL setting gives 125 MHz and at most 50 MHz from 27\.1 MHz"):
        choose_dividers(27.1, 50)
