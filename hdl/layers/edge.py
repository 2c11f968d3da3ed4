"""Between two stages: words wait where branches differ, and change their width where the stages do."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn_skews import Skew
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.resize import Resize
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class Edge(wiring.Component):
    """Carry feature maps to a consumer, and its gradients back.

    Members
    -------
    ``features`` : In, stream of ``source`` words
    ``outputs`` : Out, stream of ``target`` words
    ``gradients``, ``input_gradients`` : In, Out, likewise the other way, if ``trains``

    Parameters
    ----------
    ``words`` : int, of a frame
    ``source``, ``target`` : int, words of a transfer of the two stages; they divide ``words``
    ``skew`` : Skew, words that wait here at most, each way
    ``trains`` : bool, whether gradients come back

    Latency
    -------
    Each way 0 cycles, 1 more with a skew, and that of Resize where the widths differ.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(self, *, words: int, source: int, target: int, skew: Skew, trains: bool):
        self.words = words
        self.source = source
        self.target = target
        self.skew = skew
        self.trains = trains
        members = {"features": In(word_stream(source)), "outputs": Out(word_stream(target))}
        if trains:
            members |= {"gradients": In(word_stream(target)), "input_gradients": Out(word_stream(source))}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Words wait on the side of the source, both ways."""
        m = Module()
        waiting = self._queue(m, "forward_skew", flipped(self.features), self.skew.forward)
        connect_typed(m, self._resized(m, "forward", waiting, self.source, self.target), flipped(self.outputs))
        if self.trains:
            back = self._resized(m, "backward", flipped(self.gradients), self.target, self.source)
            waiting = self._queue(m, "backward_skew", back, self.skew.backward)
            connect_typed(m, waiting, flipped(self.input_gradients))
        return m

    def _queue(self, m: Module, name: str, source: Any, words: int) -> Any:
        """``source``, behind a queue of so many words."""
        if not words:
            return source
        queue = StreamFIFO(shape=source.payload.shape(), depth=-(-words // self.source))
        m.submodules[name] = queue
        connect_typed(m, source, queue.i)
        return queue.o

    def _resized(self, m: Module, name: str, source: Any, width: int, target: int) -> Any:
        """``source``, in transfers of ``target`` words."""
        if width == target:
            return source
        resize = Resize(words=self.words, i=width, o=target)
        m.submodules[name] = resize
        connect_typed(m, source, resize.input)
        return resize.output
