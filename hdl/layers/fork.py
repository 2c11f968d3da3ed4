"""Fork of a feature map to several layers, and the sum of the gradients that they send back."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.join import StreamJoin
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class Fork(wiring.Component):
    """Fork that copies a layer's outputs to its consumers, and sums their gradients in a balanced tree.

    The tree adds neighbours in pairs; an odd last one passes to the next level.

    Members
    -------
    ``features`` : In, stream of ``lanes`` words
        Ready when every consumer has taken the transfer or takes it in this cycle.
    ``outputs`` : Out, array of ``consumers`` streams of ``lanes`` words
        Follow ``features`` within the cycle.
    ``gradients`` : In, array of ``consumers`` streams of ``lanes`` words
        In the order of the network's edges.
    ``input_gradients`` : Out, stream of ``lanes`` words

    Parameters
    ----------
    ``lanes`` : int, at least 1
        Words of a transfer.
    ``consumers`` : int, at least 2

    Latency
    -------
    0 cycles forward; backward ``latency``, 1 + 7 · ceil(log2 ``consumers``). One transfer a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, lanes: int, consumers: int):
        if consumers < 2:
            raise ValueError(f"consumers must be at least 2, not {consumers!r}")
        self.lanes, self.consumers = lanes, consumers
        words = word_stream(lanes)
        super().__init__(
            {
                "features": In(words),
                "outputs": Out(words).array(consumers),
                "gradients": In(words).array(consumers),
                "input_gradients": Out(words),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a tree that never stalls: gradients enter only if the queue after it has room for their sum."""
        m = Module()
        words = self.features.payload.shape()
        m.submodules.fork = fork = StreamFork(shape=words, outputs=self.consumers)
        connect_typed(m, flipped(self.features), fork.i)
        for copy, output in zip(fork.o, self.outputs, strict=True):
            connect_typed(m, copy, flipped(output))

        m.submodules.join = join = StreamJoin(shape=words, inputs=self.consumers)
        for source, sink in zip(self.gradients, join.i, strict=True):
            connect_typed(m, flipped(source), sink)
        transfer = join.o.valid & join.o.ready
        total, latency = self._sum(m, list(join.o.payload), transfer)
        m.submodules.queue = queue = PipelineQueue(shape=words, latency=latency)
        connect_typed(m, queue.o, flipped(self.input_gradients))
        m.d.comb += [join.o.ready.eq(queue.ok), queue.enter.eq(transfer), queue.result.eq(total)]
        return m

    def _sum(self, m: Module, values: list[Any], valid: Value) -> tuple[Any, int]:
        """Return the sum of the terms that arrive with ``valid``, and its latency in cycles."""
        latency = 0
        while len(values) > 1:
            sums = []
            for k, (a, b) in enumerate(zip(values[::2], values[1::2], strict=False)):
                adders = shared(AdderArray(lanes=self.lanes))
                m.submodules[f"adders_{latency}_{k}"] = adders
                m.d.comb += [adders.a.eq(a), adders.b.eq(b), adders.valid.eq(valid)]
                sums.append(adders.o)
            if len(values) % 2:
                sums.append(delayed(m, values[-1], adders.latency, name=f"odd_{latency}")[-1])
            valid = delayed(m, valid, adders.latency, name=f"valid_{latency}", reset_less=False)[-1]
            values, latency = sums, latency + adders.latency
        return values[0], latency
