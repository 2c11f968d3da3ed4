"""Edge between two stages: buffers for branches of different latency, and width conversion."""

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
    """Edge that carries feature maps to a consumer, and its gradients back.

    Members
    -------
    ``features`` : In, stream of ``source`` words
    ``outputs`` : Out, stream of ``target`` words
    ``gradients`` : In, stream of ``target`` words, if ``trains``
    ``input_gradients`` : Out, stream of ``source`` words, if ``trains``
    ``waiting_level``, ``returning_level`` : Out
        Transfers in the buffer forward and backward, if the edge has that buffer; registered.

    Parameters
    ----------
    ``words`` : int, words of a frame
    ``source``, ``target`` : int, words of a transfer of the two stages; they divide ``words``
    ``trains`` : bool, gradients come back
    ``waiting`` : int
        Capacity of the buffer forward, in transfers of the source, before the width changes.
    ``returning`` : int
        Capacity of the buffer backward, in transfers of the target, before the width changes.
    ``resized`` : bool
        The buffer forward follows the width change: ``waiting`` counts transfers of the target.

    Latency
    -------
    0 cycles each way, plus 1 with a buffer, plus the latency of Resize if the widths differ.

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
        """Build a queue and a width conversion each way; ``resized`` sets their order forward."""
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
