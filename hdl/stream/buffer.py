"""Register slices that cut the combinational paths of a stream: all paths, or the path of ``ready`` alone."""

from typing import Any

from amaranth import Module, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class RegisterSlice(wiring.Component):
    """Two-entry register slice: valid, payload and ready are all registered, at full rate.

    Payloads leave in the order of arrival. ``i.ready`` falls one cycle after ``o`` stalls. The second register
    holds the payload that arrives in between.

    Members
    -------
    ``i`` : In, stream of ``shape``
        Payloads to pass on.
    ``o`` : Out, stream of ``shape``
        Payloads in the order of arrival.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of the payload.

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
        """Build the two registers; ``full``: the skid register holds the payload after the one on ``o``."""
        m = Module()
        full = Signal()
        skid = Signal(self.shape, reset_less=True)
        payload = Signal(self.shape, reset_less=True)  # resetting ``full`` and ``o.valid`` is enough

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
    """Buffer that registers ``ready`` alone, for paths where an added cycle of latency would cost too much.

    Payloads leave in the order of arrival. When ``o`` stalls, the buffer keeps the payload, and ``i`` stalls
    one cycle later.

    Members
    -------
    ``i`` : In, stream of ``shape``
        Payloads to pass on.
    ``o`` : Out, stream of ``shape``
        Payloads in the order of arrival. Follows ``i`` within the cycle, one LUT later.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of the payload.

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
        """Build the buffer; ``full``: a payload waits in it, and ``i`` stalls."""
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
