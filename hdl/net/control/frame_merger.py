"""Two senders on one MAC."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_layout, packet_stream


class FrameMerger(wiring.Component):
    """Send the frames of two streams as one, each whole, in turn where both have one.

    A frame that pauses holds up the other stream.

    Members
    -------
    ``i`` : In, two packet streams of ``width`` bits
    ``o`` : Out, packet stream of ``width`` bits

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8

    Latency
    -------
    1 cycle, and 1 more where the other stream has sent last; one beat a cycle.

    Source
    ------
    docs/boards.md, "The network's other services".
    """

    def __init__(self, *, width: int = 32):
        self.width = width
        super().__init__({"i": In(packet_stream(width)).array(2), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """``turn``: which stream sends; the other gets it when a frame ends, or while this one has none."""
        m = Module()
        o = self.o
        turn = Signal()
        inside = Signal()  # the rest of a frame is still to come
        free = Signal()
        beat = Signal(packet_layout(self.width))
        valid = Signal()
        others = Signal()
        first, second = self.i
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            beat.eq(Mux(turn, second.p, first.p)),
            valid.eq(Mux(turn, second.valid, first.valid)),
            others.eq(Mux(turn, first.valid, second.valid)),
            first.ready.eq(free & ~turn),
            second.ready.eq(free & turn),
        ]
        moves = valid & free
        with m.If(free):
            m.d.sync += [o.valid.eq(valid), o.p.eq(beat)]
        with m.If(moves):
            m.d.sync += inside.eq(~beat.last)
        with m.If(others & Mux(moves, beat.last, ~valid & ~inside)):
            m.d.sync += turn.eq(~turn)
        return m
