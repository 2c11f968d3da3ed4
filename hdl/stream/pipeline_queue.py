"""Output queue of a pipeline that cannot stall."""

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
    """Output queue of a pipeline that cannot stall.

    Each item reserves a place in the queue when it enters the pipeline.

    Members
    -------
    ``ok`` : Out(1)
        The queue has a place that is not reserved; registered.
    ``enter`` : In(1)
        An item enters the pipeline and reserves a place. Allowed only while ``ok`` is high.
    ``result`` : In, ``shape``
        Output of the pipeline: the result of the item that entered ``latency`` cycles ago.
    ``o`` : Out, stream of ``shape``
        Results in the order in which their items entered.

    Parameters
    ----------
    ``shape`` : any shape
        Shape of a result.
    ``latency`` : int, at least 0
        Latency of the pipeline, in cycles.
    ``extra_places`` : int, at least 0
        Places beyond the ``latency`` + 2 that full rate needs, for results that wait for ``o``; 0 by default.

    Latency
    -------
    ``latency`` + 1 cycles from ``enter`` to ``o``; one result a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, shape: ShapeLike, latency: int, extra_places: int = 0):
        for name, value in (("latency", latency), ("extra_places", extra_places)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value!r}")
        self.shape = shape
        self.latency = latency
        self.extra_places = extra_places
        super().__init__({"ok": Out(1), "enter": In(1), "result": In(shape), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        """Give the queue two places beyond ``latency``.

        A place is free at the earliest two cycles after its result.
        """
        m = Module()
        places = self.latency + 2 + self.extra_places
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
