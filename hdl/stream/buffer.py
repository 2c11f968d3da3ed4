"""Registers that cut the combinational paths of a stream: all of them, or that of ``ready`` alone."""

from typing import Any

from amaranth import Module, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class RegisterSlice(wiring.Component):
    """Skid buffer: valid, payload and ready are all registered, at full rate.

    Payloads leave in the order in which they came. The second register takes the payload that arrives in
    the cycle in which ``o`` stalls, since ``i.ready`` can follow only a cycle later.

    Members
    -------
    ``i`` : In, stream of ``shape``
    ``o`` : Out, stream of ``shape``

    Parameters
    ----------
    ``shape`` : any shape

    Latency
    -------
    1 cycle from ``i`` to ``o``; one transfer a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: ShapeLike):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        """``full`` says that the skid register holds the payload after the one on ``o``."""
        m = Module()
        full = Signal()
        skid = Signal(self.shape, reset_less=True)
        payload = Signal(self.shape, reset_less=True)  # a reset reaches far enough without it

        m.d.comb += [self.i.ready.eq(~full), self.o.payload.eq(payload)]
        with m.If(~full):
            m.d.sync += skid.eq(self.i.payload)
        m.d.sync += full.eq((full | self.i.valid & self.o.valid) & ~self.o.ready)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(full | self.i.valid), payload.eq(self.i.payload)]
            with m.If(full):
                m.d.sync += payload.eq(skid)
        return m


class SkidBuffer(wiring.Component):
    """A register in the path of ``ready`` alone, where a cycle in the other direction would be dear.

    Payloads leave in the order in which they came. One that ``o`` stalls waits in the buffer, and ``i`` is
    stalled a cycle later.

    Members
    -------
    ``i`` : In, stream of ``shape``
    ``o`` : Out, stream of ``shape``
        Follows ``i`` within the cycle, one LUT later.

    Parameters
    ----------
    ``shape`` : any shape

    Latency
    -------
    0 cycles from ``i`` to ``o``; one transfer a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: ShapeLike):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        """``full`` says that a payload waits in the buffer; else the buffer may take anything."""
        m = Module()
        full = Signal()
        skid = Signal(self.shape, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~full),
            self.o.valid.eq(full | self.i.valid),
            self.o.payload.eq(self.i.payload),
        ]
        m.d.sync += full.eq(self.o.valid & ~self.o.ready)
        with m.If(full):
            m.d.comb += self.o.payload.eq(skid)
        with m.Else():
            m.d.sync += skid.eq(self.i.payload)
        return m
