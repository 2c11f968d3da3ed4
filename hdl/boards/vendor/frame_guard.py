"""What comes from a MAC, which does not wait, onto a stream that may."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_layout, packet_stream


class FrameGuard(wiring.Component):
    """Keep a MAC's frames apart where ``o`` may stall: a frame that loses a beat ends with ``error``.

    A frame whose first beat finds no room leaves nothing on ``o``. One that loses a later beat, or that ``cut``
    ends, has as its last beat one byte with ``error``. All others leave as they came.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``, always ready
    ``cut`` : In(1)
        The MAC is reset: the frame under way will not go on, and the next beat begins another.
    ``o`` : Out, packet stream of ``width`` bits with ``error``
    ``lost`` : Out(1)
        Pulse: a frame has lost its first beat without room, or its rest.

    Parameters
    ----------
    ``width`` : int, bits, a multiple of 8

    Latency
    -------
    1 cycle from ``i`` to ``o``; one beat a cycle, frames back to back.

    Source
    ------
    docs/boards.md, "Vendor boards".
    """

    def __init__(self, *, width: int):
        self.width = width
        super().__init__(
            {
                "i": In(stream.Signature(packet_layout(width, error=True), always_ready=True)),
                "cut": In(1),
                "o": Out(packet_stream(width, error=True)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """``begun``: ``o`` has had beats of a frame, but not its last; ``skip``: the frame on ``i`` is lost.

        ``owed``: the last beat of a frame that lost one is due.
        """
        m = Module()
        i, o = self.i, self.o
        begun = Signal()
        skip = Signal()
        owed = Signal()
        free, takes, misses, cuts = (Signal(name=name) for name in ("free", "takes", "misses", "cuts"))
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            takes.eq(i.valid & ~skip & ~owed & free),
            misses.eq(i.valid & ~skip & ~takes),
            cuts.eq(self.cut & Mux(takes, ~i.p.last, begun & ~owed)),
        ]
        m.d.sync += self.lost.eq(misses | cuts)
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(takes):
            m.d.sync += [o.valid.eq(1), o.payload.eq(i.payload), begun.eq(~i.p.last)]
        with m.If(owed & free):
            m.d.sync += [o.valid.eq(1), o.p.keep.eq(1), o.p.last.eq(1), o.p.error.eq(1)]
            m.d.sync += [owed.eq(0), begun.eq(0)]
        with m.If(i.valid):
            m.d.sync += skip.eq((skip | misses) & ~i.p.last)
        with m.If(misses & begun & ~owed | cuts):
            m.d.sync += owed.eq(1)
        with m.If(self.cut):
            m.d.sync += skip.eq(0)
        return m
