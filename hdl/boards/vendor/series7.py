"""AMD 7 series equivalents of the ECP5's cells: MMCM for clocks, DDR cells and delays for RGMII.

Both classes have the members and parameters of ``clocks.Ecp5Clocks`` and ``rgmii_pins.RgmiiPins``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from amaranth import ClockDomain, ClockSignal, Elaboratable, Instance, Module, ResetSignal, Signal
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer

VCO_MHZ = (600, 1440)  # limits for speed grade 2 (AMD DS182, "MMCM Specification")
PHASE_MHZ = (10, 500)  # frequency at the phase detector
TX_MHZ = 125
REFERENCE_MHZ = 200  # clock of the delays; a tap is a 64th of its period
TAPS = 31
TAP_NS = 1000 / REFERENCE_MHZ / 64
QUARTER_NS = 1000 / TX_MHZ / 4


@dataclass(frozen=True)
class Dividers:
    """Dividers of the MMCM, and the frequency of its oscillator (VCO).

    The VCO runs at oscillator / ``input`` · ``feedback``.
    """

    input: int  #: divides the board's oscillator
    feedback: int  #: divides the VCO for the feedback
    tx: int  #: divides the VCO for the transmitter
    reference: int  #: divides the VCO for the input delays
    core: int  #: divides the VCO for the core
    vco_mhz: Fraction

    @property
    def core_mhz(self) -> float:
        """Clock of the core in MHz."""
        return float(self.vco_mhz / self.core)


def choose_dividers(oscillator_mhz: float, core_mhz: float) -> Dividers:
    """Return the dividers for the fastest core of at most ``core_mhz``.

    The transmitter's clock is exactly 125 MHz, and the delays' reference exactly 200 MHz. Raises ValueError if
    no dividers give these clocks.
    """
    oscillator, candidates = Fraction(oscillator_mhz), []
    for divide in range(1, 107):
        phase = oscillator / divide
        if PHASE_MHZ[0] <= phase <= PHASE_MHZ[1]:
            for multiple in range(2, 65):
                vco = phase * multiple
                tx, reference = vco / TX_MHZ, vco / REFERENCE_MHZ
                core = -(-vco // Fraction(core_mhz))
                exact = tx.denominator == reference.denominator == 1
                if VCO_MHZ[0] <= vco <= VCO_MHZ[1] and exact and core <= 128:
                    candidates.append(Dividers(divide, multiple, int(tx), int(reference), int(core), vco))
    best = max(candidates, key=lambda dividers: dividers.core_mhz, default=None)
    if best is None:
        raise ValueError(
            f"no MMCM setting gives {TX_MHZ} MHz and at most {core_mhz} MHz from {oscillator_mhz} MHz"
        )
    return best


class Series7Clocks(Elaboratable):
    """Clocks ``sync`` (core), ``tx`` (125 MHz) and ``tx_shifted``, a quarter of a period after ``tx``.

    The top defines these domains (``DOMAINS``). ``sync`` and ``tx`` are in reset until the MMCM has locked;
    ``tx_shifted`` only drives pins. The class also contains the controller of the input delays.

    Parameters
    ----------
    ``oscillator`` : Signal
        The board's clock from its pin.
    ``reset`` : Value
        1 while the board's reset button is pressed.
    ``dividers`` : Dividers
        Dividers of the MMCM.
    """

    DOMAINS = ("sync", "tx", "tx_shifted")

    def __init__(self, *, oscillator: Any, reset: Any, dividers: Dividers):
        self._oscillator = oscillator
        self._reset = reset
        self.dividers = dividers

    def elaborate(self, platform: Any) -> Module:
        """Instantiate the MMCM and a global buffer for each domain; the feedback needs no buffer."""
        m = Module()
        dividers = self.dividers
        locked = Signal()
        loop = Signal()
        outputs = {
            "sync": (dividers.core, 0),
            "tx": (dividers.tx, 0),
            "tx_shifted": (dividers.tx, 90),
            "delay": (dividers.reference, 0),
        }
        m.domains.delay = ClockDomain(local=True)
        connections: dict[str, Any] = {}
        for number, (domain, (divide, phase)) in enumerate(outputs.items()):
            raw = Signal(name=f"{domain}_raw")
            m.submodules[f"{domain}_buffer"] = Instance("BUFG", i_I=raw, o_O=ClockSignal(domain))
            if domain != "tx_shifted":
                m.submodules[f"{domain}_reset"] = ResetSynchronizer(~locked, domain=domain)
            connections |= {
                f"p_CLKOUT{number}_DIVIDE{'_F' * (number == 0)}": divide,
                f"p_CLKOUT{number}_PHASE": float(phase),
                f"o_CLKOUT{number}": raw,
            }
        m.submodules.mmcm = Instance(
            "MMCME2_BASE",
            p_CLKIN1_PERIOD=float(1000 * dividers.feedback / dividers.input / dividers.vco_mhz),
            p_DIVCLK_DIVIDE=dividers.input,
            p_CLKFBOUT_MULT_F=dividers.feedback,
            i_CLKIN1=self._oscillator,
            i_RST=self._reset,
            i_PWRDWN=0,
            i_CLKFBIN=loop,
            o_CLKFBOUT=loop,
            o_LOCKED=locked,
            **connections,
        )
        m.submodules.delay_control = Instance(
            "IDELAYCTRL", i_REFCLK=ClockSignal("delay"), i_RST=ResetSignal("delay")
        )
        return m


def delay_taps(nanoseconds: float) -> int:
    """Return the taps of an input delay. Raises ValueError if the delay is out of range."""
    taps = round(nanoseconds / TAP_NS)
    if not 0 <= taps <= TAPS:
        raise ValueError(f"delay must be 0 to {TAPS * TAP_NS:.2f} ns, not {nanoseconds!r}")
    return taps


class Series7RgmiiPins(Elaboratable):
    """Data and control pins of RGMII as pairs of bits, the first for the rising edge, and both clocks.

    ``rx`` and ``tx`` have the control pin above the four data pins. Received bits are in the domain ``rx``,
    bits to transmit in ``tx``. ``tx_clock`` is the transmit clock as two halves of its period, delayed by 0 or
    by a quarter of a period.
    """

    def __init__(self, *, port: Any, rx_delay_ns: float, tx_delay_ns: float):
        if tx_delay_ns not in (0, QUARTER_NS):
            raise ValueError(f"tx_delay_ns must be 0 or {QUARTER_NS}, not {tx_delay_ns!r}")
        self._port = port
        self._taps = delay_taps(rx_delay_ns)
        self._clock_domain = "tx_shifted" if tx_delay_ns else "tx"
        self.rx_clock = Signal()
        self.rx = [Signal(5, name=f"rx{half}") for half in range(2)]
        self.tx = [Signal(5, name=f"tx{half}") for half in range(2)]
        self.tx_clock = [Signal(name=f"tx_clock{half}") for half in range(2)]

    def elaborate(self, platform: Any) -> Module:
        """Instantiate a buffer and a DDR cell for every pin, and a delay for each received pin."""
        m = Module()
        port = self._port
        m.submodules.rx_clock = clock = io.Buffer("i", port.rx_clk)
        m.submodules.rx_clock_buffer = Instance("BUFG", i_I=clock.i, o_O=self.rx_clock)
        for name, pins, at in (("data", port.rx_data, 0), ("control", port.rx_ctl, 4)):
            m.submodules[f"rx_{name}"] = buffer = io.Buffer("i", pins)
            for bit in range(len(buffer.i)):
                self._receive(m, f"rx_{name}{bit}", buffer.i[bit], at + bit)
        for name, pins, at in (("data", port.tx_data, 0), ("control", port.tx_ctl, 4)):
            m.submodules[f"tx_{name}"] = buffer = io.Buffer("o", pins)
            for bit in range(len(buffer.o)):
                halves = [half[at + bit] for half in self.tx]
                m.submodules[f"tx_{name}{bit}"] = _send(halves, buffer.o[bit], "tx")
        m.submodules.tx_clock = buffer = io.Buffer("o", port.tx_clk)
        m.submodules.tx_clock_pin = _send(self.tx_clock, buffer.o[0], self._clock_domain)
        return m

    def _receive(self, m: Module, name: str, pin: Any, bit: int) -> None:
        delayed = Signal(name=f"{name}_delayed")
        m.submodules[f"{name}_delay"] = Instance(
            "IDELAYE2",
            p_IDELAY_TYPE="FIXED",
            p_IDELAY_VALUE=self._taps,
            p_DELAY_SRC="IDATAIN",
            i_IDATAIN=pin,
            i_DATAIN=0,
            i_C=0,
            i_CE=0,
            i_INC=0,
            i_LD=0,
            i_LDPIPEEN=0,
            i_CINVCTRL=0,
            i_CNTVALUEIN=Signal(5),
            i_REGRST=0,
            o_DATAOUT=delayed,
        )
        m.submodules[f"{name}_ddr"] = Instance(
            "IDDR",
            p_DDR_CLK_EDGE="SAME_EDGE_PIPELINED",
            i_C=ClockSignal("rx"),
            i_CE=1,
            i_D=delayed,
            i_R=0,
            i_S=0,
            o_Q1=self.rx[0][bit],
            o_Q2=self.rx[1][bit],
        )


def _send(halves: list[Any], pin: Any, domain: str) -> Instance:
    return Instance(
        "ODDR",
        p_DDR_CLK_EDGE="SAME_EDGE",
        i_C=ClockSignal(domain),
        i_CE=1,
        i_D1=halves[0],
        i_D2=halves[1],
        i_R=0,
        i_S=0,
        o_Q=pin,
    )
