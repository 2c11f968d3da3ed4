"""Pins of an RGMII port on an ECP5: two bits a clock each, and the delays that the board needs."""

from __future__ import annotations

from typing import Any

from amaranth import ClockSignal, Elaboratable, Instance, Module, Signal
from amaranth.lib import io

DELAY_STEP_NS = 0.025  # step of a DELAYG; Lattice FPGA-DS-02012, "DELAY"
DELAY_STEPS = 127


def delay_steps(nanoseconds: float) -> int:
    """Return the steps of a delay element. Raises ValueError if the delay is out of range."""
    steps = round(nanoseconds / DELAY_STEP_NS)
    if not 0 <= steps <= DELAY_STEPS:
        raise ValueError(f"delay must be 0 to {DELAY_STEPS * DELAY_STEP_NS:g} ns, not {nanoseconds!r}")
    return steps


class RgmiiPins(Elaboratable):
    """Data and control pins of RGMII as pairs of bits, the first for the rising edge, and both clocks.

    ``rx`` and ``tx`` have the control pin above the four data pins. Received bits are in the domain ``rx``,
    bits to transmit in ``tx``. ``rx_clock``, an output, is the received clock. ``tx_clock`` is the transmit
    clock as two halves of its period.

    - ``port``: board resource ``eth_rgmii``, as requested from the platform.
    - ``rx_delay_ns``: delay of the received data and control pins, 0 to 3.175 ns.
    - ``tx_delay_ns``: delay of the transmitted clock, 0 to 3.175 ns.

    Raises ValueError for a delay out of range.
    """

    def __init__(self, *, port: Any, rx_delay_ns: float, tx_delay_ns: float):
        self._port = port
        self._rx_steps = delay_steps(rx_delay_ns)
        self._tx_steps = delay_steps(tx_delay_ns)
        self.rx_clock = Signal()
        self.rx = [Signal(5, name=f"rx{half}") for half in range(2)]
        self.tx = [Signal(5, name=f"tx{half}") for half in range(2)]
        self.tx_clock = [Signal(name=f"tx_clock{half}") for half in range(2)]

    def elaborate(self, platform: Any) -> Module:
        """Instantiate a buffer, a delay and a DDR cell for every pin."""
        m = Module()
        port = self._port
        m.submodules.rx_clock = clock = io.Buffer("i", port.rx_clk)
        m.d.comb += self.rx_clock.eq(clock.i)
        for name, pins, at in (("data", port.rx_data, 0), ("control", _control(port, "rx"), 4)):
            m.submodules[f"rx_{name}"] = buffer = io.Buffer("i", pins)
            for bit in range(len(buffer.i)):
                self._receive(m, f"rx_{name}{bit}", buffer.i[bit], at + bit)
        for name, pins, at in (("data", port.tx_data, 0), ("control", _control(port, "tx"), 4)):
            m.submodules[f"tx_{name}"] = buffer = io.Buffer("o", pins)
            for bit in range(len(buffer.o)):
                halves = [half[at + bit] for half in self.tx]
                self._send(m, f"tx_{name}{bit}", halves, buffer.o[bit], 0)
        m.submodules.tx_clock = buffer = io.Buffer("o", port.tx_clk)
        self._send(m, "tx_clock_pin", self.tx_clock, buffer.o[0], self._tx_steps)
        return m

    def _receive(self, m: Module, name: str, pin: Any, bit: int) -> None:
        delayed = Signal(name=f"{name}_delayed")
        m.submodules[f"{name}_delay"] = _delay(pin, delayed, self._rx_steps)
        m.submodules[f"{name}_ddr"] = Instance(
            "IDDRX1F",
            i_SCLK=ClockSignal("rx"),
            i_RST=0,
            i_D=delayed,
            o_Q0=self.rx[0][bit],
            o_Q1=self.rx[1][bit],
        )

    def _send(self, m: Module, name: str, halves: list[Any], pin: Any, steps: int) -> None:
        undelayed = Signal(name=f"{name}_early")
        m.submodules[f"{name}_ddr"] = Instance(
            "ODDRX1F", i_SCLK=ClockSignal("tx"), i_RST=0, i_D0=halves[0], i_D1=halves[1], o_Q=undelayed
        )
        m.submodules[f"{name}_delay"] = _delay(undelayed, pin, steps)


def _delay(source: Any, target: Any, steps: int) -> Instance:
    return Instance("DELAYG", p_DEL_MODE="USER_DEFINED", p_DEL_VALUE=steps, i_A=source, o_Z=target)


def _control(port: Any, direction: str) -> Any:
    """Return the control pin, which boards call ``rx_ctl`` or ``rx_ctrl``."""
    return getattr(port, f"{direction}_ctl", None) or getattr(port, f"{direction}_ctrl")
