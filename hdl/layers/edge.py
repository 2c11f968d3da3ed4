"""Between two stages: words wait where branches differ, and change their width where the stages do."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.resize import Resize
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class EdgeLink(wiring.Component):
    """Carry feature maps to a consumer, and its gradients back.

    Members
    -------
    ``features`` : In, stream of ``source`` words
    ``outputs`` : Out, stream of ``target`` words
    ``gradients``, ``input_gradients`` : In, Out, likewise the other way, if ``trains``
    ``waiting_level``, ``returning_level`` : Out
        Transfers that wait, each where any may; registered.

    Parameters
    ----------
    ``words`` : int, of a frame
    ``source``, ``target`` : int, words of a transfer of the two stages; they divide ``words``
    ``trains`` : bool, whether gradients come back
    ``waiting``, ``returning`` : int
        Transfers of the source, and of the target, that wait here at most, before their width changes.

    Latency
    -------
    Each way 0 cycles, 1 more where words may wait, and that of Resize where the widths differ.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(
        self, *, words: int, source: int, target: int, trains: bool, waiting: int = 0, returning: int = 0
    ):
        self.words = words
        self.source = source
        self.target = target
        self.trains = trains
        self.waiting = waiting
        self.returning = returning
        members = {"features": In(word_stream(source)), "outputs": Out(word_stream(target))}
        if trains:
            members |= {"gradients": In(word_stream(target)), "input_gradients": Out(word_stream(source))}
        if waiting:
            members["waiting_level"] = Out(range(waiting + 1))
        if trains and returning:
            members["returning_level"] = Out(range(returning + 1))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Both ways are alike."""
        m = Module()
        forward = self.waiting, self.source, self.target
        self._way(m, "waiting", flipped(self.features), flipped(self.outputs), *forward)
        if self.trains:
            backward = self.returning, self.target, self.source
            self._way(m, "returning", flipped(self.gradients), flipped(self.input_gradients), *backward)
        return m

    def _way(self, m: Module, name: str, i: Any, o: Any, depth: int, width: int, other: int) -> None:
        """From a stream of one width to one of another, behind a queue."""
        if depth:
            m.submodules[f"{name}_queue"] = queue = StreamFIFO(shape=i.payload.shape(), depth=depth)
            connect_typed(m, i, queue.i)
            m.d.comb += getattr(self, f"{name}_level").eq(queue.level)
            i = queue.o
        if width != other:
            m.submodules[f"{name}_resize"] = resize = Resize(words=self.words, i=width, o=other)
            connect_typed(m, i, resize.input)
            i = resize.output
        connect_typed(m, i, o)
