"""Guard between a MAC, which cannot wait, and a stream that may stall."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_layout, packet_stream


class FrameGuard(wiring.Component):
    """Guard of a MAC's frames when ``o`` stalls: a frame that loses a beat ends with ``error``.

    A frame without room for its first beat leaves nothing on ``o``. A frame that loses a later beat, or that
    ``cut`` ends, gets a last beat of one byte with ``error``. All other frames pass unchanged.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``, always ready
        Frames from the MAC.
    ``cut`` : In(1)
        The MAC is reset: the current frame will not continue, and the next beat begins a new frame.
    ``o`` : Out, packet stream of ``width`` bits with ``error``
        Guarded frames.
    ``lost`` : Out(1)
        Pulse: a frame was lost, from its first or from a later beat on.

    Parameters
    ----------
    ``width`` : int
        Bits of a beat, a multiple of 8.

    Latency
    -------
    1 cycle from ``i`` to ``o``; one beat a cycle, frames back to back.

    Source
    ------
    docs/systems/boards.md, "Vendor boards".
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
        """Track the frame on ``o`` and the frame on ``i``.

        ``in_frame``: ``o`` has had beats of a frame, but not its last. ``skip``: the frame on ``i`` is lost.
        ``error_due``: the last beat of a frame that lost a beat is due.
        """
        m = Module()
        i, o = self.i, self.o
        in_frame = Signal()
        skip = Signal()
        error_due = Signal()
        free, accept, lose, truncate = (Signal(name=name) for name in ("free", "accept", "lose", "truncate"))
        m.d.comb += [
            free.eq(~o.valid | o.ready),
            accept.eq(i.valid & ~skip & ~error_due & free),
            lose.eq(i.valid & ~skip & ~accept),
            truncate.eq(self.cut & Mux(accept, ~i.p.last, in_frame & ~error_due)),
        ]
        m.d.sync += self.lost.eq(lose | truncate)
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(accept):
            m.d.sync += [o.valid.eq(1), o.payload.eq(i.payload), in_frame.eq(~i.p.last)]
        with m.If(error_due & free):
            m.d.sync += [o.valid.eq(1), o.p.keep.eq(1), o.p.last.eq(1), o.p.error.eq(1)]
            m.d.sync += [error_due.eq(0), in_frame.eq(0)]
        with m.If(i.valid):
            m.d.sync += skip.eq((skip | lose) & ~i.p.last)
        with m.If(lose & in_frame & ~error_due | truncate):
            m.d.sync += error_due.eq(1)
        with m.If(self.cut):
            m.d.sync += skip.eq(0)
        return m
