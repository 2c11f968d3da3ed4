"""RGMII: GMII on half the pins, at both edges of the clock. The board adds the DDR cells.

A pin is two bits here: its value at the rising edge of the clock (``0``) and at the falling edge after it
(``1``).
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.ethernet.gmii import START, Gmii

STABLE = 16  # cycles between frames with the same status, before the status is accepted
_PERIOD = 5  # cycles of a clock of 25 MHz
_FAST_AT = 2  # the cycle of a period that has the values of both edges, as all cycles have at 1 Gb/s


class Speed(enum.Enum, shape=2):  # type: ignore[call-arg]
    """Speed of a link; 10 Mb/s is received, but not sent."""

    MBPS_10 = 0
    MBPS_100 = 1
    MBPS_1000 = 2


#: Status that the PHY reports between frames.
LinkStatus = data.StructLayout({"up": 1, "speed": Speed, "full_duplex": 1})
_DEFAULT_STATUS = {"speed": Speed.MBPS_1000, "full_duplex": 1}


class RgmiiReceiver(wiring.Component):
    """Receive side of RGMII: converts to GMII, and reads the PHY's status between frames.

    Below 1 Gb/s a byte is two nibbles, low nibble first; the start delimiter gives the alignment.

    Members
    -------
    ``data0`` : In, 4
        Data at the rising edge.
    ``data1`` : In, 4
        Data at the falling edge.
    ``ctl0`` : In, 1
        Control at the rising edge.
    ``ctl1`` : In, 1
        Control at the falling edge.
    ``gmii`` : Out, Gmii
        Received bytes.
    ``enable`` : Out, 1
        A byte is on ``gmii``.
    ``status`` : Out, LinkStatus
        Status after 16 equal cycles between frames. Speed and duplex are those of the last link, and 1 Gb/s
        full duplex before the first, since a PHY may report nothing.

    Parameters
    ----------
    None.

    Latency
    -------
    1 cycle from a byte's second half.

    Source
    ------
    RGMII 2.0 (Hewlett-Packard, 2002), sections 3.4 and 5.0.
    """

    def __init__(self) -> None:
        halves = {"data0": In(4), "data1": In(4), "ctl0": In(1), "ctl1": In(1)}
        super().__init__(
            {**halves, "gmii": Out(Gmii), "enable": Out(1), "status": Out(LinkStatus, init=_DEFAULT_STATUS)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the bytes for 1 Gb/s and for lower speeds, and select.

        At 1 Gb/s every cycle has a byte. At lower speeds every cycle has a nibble: ``low`` holds that of the
        previous cycle, and ``complete`` is high if the current nibble completes a byte. Nibbles alternate
        (``is_high``), and the start delimiter aligns them.
        """
        m = Module()
        is_gigabit = Signal()
        m.d.sync += is_gigabit.eq(self.status.speed == Speed.MBPS_1000)
        self._read_status(m)

        damaged = Signal()
        m.d.comb += damaged.eq(self.ctl0 ^ self.ctl1)
        low = Signal(data.StructLayout({"nibble": 4, "valid": 1, "damaged": 1}))
        is_high = Signal()
        started = Signal()
        complete = Signal()
        starts = ~started & (Cat(low.nibble, self.data0) == START) & low.valid & self.ctl0
        m.d.comb += complete.eq(is_high | starts)
        m.d.sync += [
            low.nibble.eq(self.data0),
            low.valid.eq(self.ctl0),
            low.damaged.eq(damaged),
            is_high.eq(~complete),
            started.eq(self.ctl0 & (started | starts)),
        ]
        with m.If(is_gigabit):
            m.d.sync += [
                self.gmii.data.eq(Cat(self.data0, self.data1)),
                self.gmii.valid.eq(self.ctl0),
                self.gmii.error.eq(damaged),
                self.enable.eq(1),
            ]
        with m.Else():
            m.d.sync += [
                self.gmii.data.eq(Cat(low.nibble, self.data0)),
                self.gmii.valid.eq(self.ctl0 & low.valid),
                self.gmii.error.eq(damaged | low.damaged),
                self.enable.eq(complete),
            ]
        return m

    def _read_status(self, m: Module) -> None:
        """Read the status from the data pins while neither carrier nor error is present."""
        reported = Signal(LinkStatus)
        count = Signal(range(STABLE))
        with m.If(~self.ctl0 & ~self.ctl1):
            m.d.sync += reported.eq(self.data0)
            with m.If(reported.as_value() != self.data0):
                m.d.sync += count.eq(0)
            with m.Elif(count != STABLE - 1):
                m.d.sync += count.eq(count + 1)
            with m.Else():
                m.d.sync += self.status.up.eq(reported.up)
                with m.If(reported.up):
                    m.d.sync += self.status.eq(reported)


class RgmiiTransmitter(wiring.Component):
    """Transmit side of RGMII: converts from GMII and outputs the clock, in a domain of 125 MHz.

    At 100 Mb/s the clock has 25 MHz, and a byte takes two of its periods: low nibble first, on both edges.

    Members
    -------
    ``gmii`` : In, Gmii
        Bytes to send.
    ``enable`` : Out, 1
        ``gmii`` must have its next byte a cycle later.
    ``speed`` : In, Speed
        Speed of the link, synchronous to this domain. A change damages the frame being sent.
    ``data0`` : Out, 4
        Data in the first half of the cycle.
    ``data1`` : Out, 4
        Data in the second half of the cycle.
    ``ctl0`` : Out, 1
        Control in the first half of the cycle.
    ``ctl1`` : Out, 1
        Control in the second half of the cycle.
    ``clock0`` : Out, 1
        Clock in the first half of the cycle. Its edges coincide with the data's; the board or the PHY delays
        them.
    ``clock1`` : Out, 1
        Clock in the second half of the cycle.

    Parameters
    ----------
    None.

    Latency
    -------
    1 cycle from ``gmii`` to its first half.

    Source
    ------
    RGMII 2.0 (Hewlett-Packard, 2002), sections 3.4 and 5.0.
    """

    def __init__(self) -> None:
        halves = {"data0": Out(4), "data1": Out(4), "ctl0": Out(1), "ctl1": Out(1)}
        clock = {"clock0": Out(1), "clock1": Out(1)}
        super().__init__({"gmii": In(Gmii), "enable": Out(1), "speed": In(Speed), **halves, **clock})

    def elaborate(self, platform: Any) -> Module:
        """Count the cycles of a clock period in the one-hot ring ``cycle``.

        ``upper`` selects the second nibble of a byte. At 1 Gb/s ``cycle`` stays at the cycle in whose middle
        the clock falls.
        """
        m = Module()
        is_gigabit = Signal()
        cycle = Signal(_PERIOD, init=1 << _FAST_AT)
        upper = Signal()
        high = [Signal(), Signal()]
        m.d.comb += [high[0].eq(cycle[: _FAST_AT + 1].any()), high[1].eq(cycle[:_FAST_AT].any())]
        m.d.sync += is_gigabit.eq(self.speed == Speed.MBPS_1000)
        with m.If(is_gigabit):
            m.d.sync += [cycle.eq(1 << _FAST_AT), self.enable.eq(1)]
        with m.Else():
            m.d.sync += [cycle.eq(cycle.rotate_left(1)), self.enable.eq(upper & cycle[-2])]
            with m.If(cycle[-1]):
                m.d.sync += upper.eq(~upper)

        gmii = self.gmii
        nibble = Mux(upper & ~is_gigabit, gmii.data[4:], gmii.data[:4])
        m.d.sync += [self.data0.eq(nibble), self.data1.eq(Mux(is_gigabit, gmii.data[4:], nibble))]
        for control, clock, is_high in zip(
            (self.ctl0, self.ctl1), (self.clock0, self.clock1), high, strict=True
        ):
            # Enable while the clock is high, enable XOR error while it is low.
            m.d.sync += [clock.eq(is_high), control.eq(gmii.valid ^ (gmii.error & ~is_high))]
        return m
