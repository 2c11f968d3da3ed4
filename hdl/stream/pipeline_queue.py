"""What stands behind a pipeline that cannot stall."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.hdl import ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO


class PipelineQueue(wiring.Component):
    """Queue the results of a pipeline that cannot stall; who enters the pipeline reserves a place in the queue.

    Members
    -------
    ``ok`` : Out(1)
        The queue has a place that is not reserved; registered.
    ``enter`` : In(1)
        Something enters the pipeline, and reserves a place for its result; only while ``ok``.
    ``result`` : In, ``shape``
        What entered ``latency`` cycles ago, as the pipeline has made it.
    ``o`` : Out, stream of ``shape``

    Parameters
    ----------
    ``shape`` : any shape
    ``latency`` : int, at least 0
        Cycles of the pipeline.
    ``room`` : int, at least 0
        Results that may wait, beside those that are under way when the next stream takes one a cycle.

    Latency
    -------
    ``latency`` + 1 cycles from ``enter`` to ``o``; one result a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: ShapeLike, latency: int, room: int = 0):
        for name, value in (("latency", latency), ("room", room)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value!r}")
        self.shape = shape
        self.latency = latency
        self.room = room
        super().__init__({"ok": Out(1), "enter": In(1), "result": In(shape), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        """A place is free again two cycles after its result has come, at best: so many more give full rate."""
        m = Module()
        places = self.latency + 2 + self.room
        m.submodules.fifo = fifo = StreamFIFO(shape=self.shape, depth=places)
        m.submodules.credits = credits = Credits(limit=places, full=True)
        connect_typed(m, fifo.o, flipped(self.o))
        m.d.comb += [
            self.ok.eq(credits.ok),
            credits.take.eq(self.enter),
            credits.give.eq(self.o.valid & self.o.ready),
            fifo.i.valid.eq(delayed(m, self.enter, self.latency, name="enter", reset_less=False)[-1]),
            fifo.i.payload.eq(self.result),
        ]
        return m
