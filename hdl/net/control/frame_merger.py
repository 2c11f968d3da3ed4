"""Merger of two senders' frames for one MAC."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_layout, packet_stream


class FrameMerger(wiring.Component):
    """Merger of two packet streams into one, frame by frame, in turn if both have one.

    A frame that pauses blocks the other stream.

    Members
    -------
    ``i`` : In, two packet streams of ``width`` bits
        Frames of the two senders.
    ``o`` : Out, packet stream of ``width`` bits
        Frames of both.

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8
        Bits of a beat; 32 by default.

    Latency
    -------
    1 cycle, and 1 more where the other stream has sent last; one beat a cycle.

    Source
    ------
    docs/systems/boards.md, "The network's other services".
    """

    def __init__(self, *, width: int = 32):
        self.width = width
        super().__init__({"i": In(packet_stream(width)).array(2), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Select a stream with ``turn``, which changes after a frame, or while the selected stream has none."""
        m = Module()
        o = self.o
        turn = Signal()
        inside = Signal()  # a frame has started and not ended
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
