"""Between two stages: words wait where branches differ, and change their width where the stages do."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.resize import resized
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
    ``resized`` : bool
        Whether ``waiting`` are transfers of the target instead, which wait when their width has changed.

    Latency
    -------
    Each way 0 cycles, 1 more where words may wait, and that of Resize where the widths differ.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(
        self,
        *,
        words: int,
        source: int,
        target: int,
        trains: bool,
        waiting: int = 0,
        returning: int = 0,
        resized: bool = False,
    ):
        self.words = words
        self.source = source
        self.target = target
        self.trains = trains
        self.waiting = waiting
        self.returning = returning
        self.resized = resized
        members = {"features": In(word_stream(source)), "outputs": Out(word_stream(target))}
        if trains:
            members |= {"gradients": In(word_stream(target)), "input_gradients": Out(word_stream(source))}
        if waiting:
            members["waiting_level"] = Out(range(waiting + 1))
        if trains and returning:
            members["returning_level"] = Out(range(returning + 1))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Each way a queue and a change of width, forward in the order that ``resized`` says."""
        m = Module()
        widths = self.source, self.target
        forward: Any = flipped(self.features)
        if self.resized:
            forward = self._queued(m, "waiting", self._resized(m, "waiting", forward, *widths), self.waiting)
        else:
            forward = self._resized(m, "waiting", self._queued(m, "waiting", forward, self.waiting), *widths)
        connect_typed(m, forward, flipped(self.outputs))
        if self.trains:
            back = self._queued(m, "returning", flipped(self.gradients), self.returning)
            back = self._resized(m, "returning", back, *reversed(widths))
            connect_typed(m, back, flipped(self.input_gradients))
        return m

    def _resized(self, m: Module, name: str, stream: Any, i: int, o: int) -> Any:
        return resized(m, f"{name}_resize", stream, words=self.words, i=i, o=o)

    def _queued(self, m: Module, name: str, stream: Any, depth: int) -> Any:
        if not depth:
            return stream
        m.submodules[f"{name}_queue"] = queue = StreamFIFO(shape=stream.payload.shape(), depth=depth)
        connect_typed(m, stream, queue.i)
        m.d.comb += getattr(self, f"{name}_level").eq(queue.level)
        return queue.o
