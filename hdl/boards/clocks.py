"""PLL of an ECP5: clocks of core and transmitter from the board's oscillator, of any frequency.

Limits: Lattice FPGA-DS-02012, "sysCLOCK PLL Timing".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from amaranth import ClockSignal, Elaboratable, Instance, Module, Signal
from amaranth.lib.cdc import ResetSynchronizer

VCO_MHZ = (400, 800)
PHASE_MHZ = (10, 400)  # frequency at the phase detector
MAX_OUTPUT_MHZ = 400
DIVIDERS = range(1, 129)
TX_MHZ = 125


@dataclass(frozen=True)
class Dividers:
    """Dividers of the PLL, and the frequency of its oscillator (VCO).

    The VCO runs at oscillator / ``input`` · ``feedback`` · ``loop``.
    """

    input: int  #: divides the board's oscillator
    feedback: int  #: divides the output of ``loop`` for the phase detector
    loop: int  #: divides the VCO for the feedback
    tx: int  #: divides the VCO for the transmitter
    core: int  #: divides the VCO for the core
    vco_mhz: Fraction

    @property
    def core_mhz(self) -> float:
        """Clock of the core in MHz."""
        return float(self.vco_mhz / self.core)


def choose_dividers(oscillator_mhz: float, core_mhz: float) -> Dividers:
    """Return the dividers for the fastest core of at most ``core_mhz`` and a transmitter of exactly 125 MHz.

    Raises ValueError if there are none.
    """
    candidates = _choices(Fraction(oscillator_mhz), Fraction(core_mhz))
    best = max(candidates, key=lambda dividers: dividers.core_mhz, default=None)
    if best is None:
        raise ValueError(
            f"no PLL setting gives {TX_MHZ} MHz and at most {core_mhz} MHz from {oscillator_mhz} MHz"
        )
    return best


def _choices(oscillator: Fraction, core_mhz: Fraction) -> Iterator[Dividers]:
    """Yield all dividers that the PLL supports, each with the fastest feedback output.

    All frequencies are in MHz; ``phase`` is that at the phase detector.
    """
    for divide in DIVIDERS:
        phase = oscillator / divide
        if not PHASE_MHZ[0] <= phase <= PHASE_MHZ[1]:
            continue
        for multiple in range(1, int(VCO_MHZ[1] / phase) + 1):
            vco = phase * multiple
            tx = vco / TX_MHZ
            core = -(-vco // core_mhz)
            loops = [n for n in DIVIDERS if multiple % n == 0 and vco / n <= MAX_OUTPUT_MHZ]
            if VCO_MHZ[0] <= vco and tx.denominator == 1 and core in DIVIDERS and loops:
                yield Dividers(divide, multiple // loops[0], loops[0], int(tx), int(core), vco)


class Ecp5Clocks(Elaboratable):
    """Clocks and resets of ``sync`` (core) and ``tx`` (125 MHz); resets last until the PLL has locked.

    The top defines these domains (``DOMAINS``).

    Parameters
    ----------
    ``oscillator`` : Signal
        The board's clock from its pin.
    ``reset`` : Value
        1 while the board's reset button is pressed.
    ``dividers`` : Dividers
        Dividers of the PLL.
    """

    DOMAINS = ("sync", "tx")

    def __init__(self, *, oscillator: Any, reset: Any, dividers: Dividers):
        self._oscillator = oscillator
        self._reset = reset
        self.dividers = dividers

    def elaborate(self, platform: Any) -> Module:
        """Instantiate the PLL; its feedback has its own output, so the two clocks do not limit the VCO."""
        m = Module()
        dividers = self.dividers
        locked = Signal()
        loop = Signal()
        for domain in self.DOMAINS:
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(~locked, domain=domain)
        m.submodules.pll = Instance(
            "EHXPLLL",
            ("a", "FREQUENCY_PIN_CLKOS", f"{TX_MHZ}"),
            ("a", "FREQUENCY_PIN_CLKOS2", f"{dividers.core_mhz:.6f}"),
            ("a", "ICP_CURRENT", "12"),
            ("a", "LPF_RESISTOR", "8"),
            p_CLKI_DIV=dividers.input,
            p_CLKFB_DIV=dividers.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=dividers.loop,
            p_CLKOP_CPHASE=dividers.loop - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=dividers.tx,
            p_CLKOS_CPHASE=dividers.tx - 1,
            p_CLKOS_FPHASE=0,
            p_CLKOS2_ENABLE="ENABLED",
            p_CLKOS2_DIV=dividers.core,
            p_CLKOS2_CPHASE=dividers.core - 1,
            p_CLKOS2_FPHASE=0,
            i_CLKI=self._oscillator,
            i_CLKFB=loop,
            i_RST=self._reset,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=loop,
            o_CLKOS=ClockSignal("tx"),
            o_CLKOS2=ClockSignal("sync"),
            o_LOCK=locked,
        )
        return m
