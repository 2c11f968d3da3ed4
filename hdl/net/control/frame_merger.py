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
        """Send the ``selected`` stream; select the other one after a frame, or while this one has none."""
        m = Module()
        o = self.o
        selected = Signal()
        in_frame = Signal()  # a frame has started and not ended
        free = Signal()
        beat = Signal(packet_layout(self.width))
        valid = Signal()
        other_valid = Signal()
        first, second = self.i
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            beat.eq(Mux(selected, second.p, first.p)),
            valid.eq(Mux(selected, second.valid, first.valid)),
            other_valid.eq(Mux(selected, first.valid, second.valid)),
            first.ready.eq(free & ~selected),
            second.ready.eq(free & selected),
        ]
        moves = valid & free
        with m.If(free):
            m.d.sync += [o.valid.eq(valid), o.p.eq(beat)]
        with m.If(moves):
            m.d.sync += in_frame.eq(~beat.last)
        with m.If(other_valid & Mux(moves, beat.last, ~valid & ~in_frame)):
            m.d.sync += selected.eq(~selected)
        return m
