"""Sum of two feature maps."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import add
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.emit import shared
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.join import StreamJoin
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class Add(wiring.Component):
    """Sum of two inputs, word by word; both inputs receive a copy of the gradient.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients`` : present if ``layer.gradient``
        ``input_gradients`` follow ``gradients`` within the cycle.

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.add.Add``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    8 cycles forward, 0 backward; one transfer a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: add.Add, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))

    def elaborate(self, platform: Any) -> Module:
        """Build adders that never stall: two transfers enter only if the queue has room for their sum."""
        m = Module()
        words = self.outputs.payload.shape()
        m.submodules.join = join = StreamJoin(shape=words)
        m.submodules.adders = adders = shared(AdderArray(lanes=self.parallelism.po))
        m.submodules.queue = queue = PipelineQueue(shape=words, latency=adders.latency)
        for source, sink in zip(self.features, join.i, strict=True):
            connect_typed(m, flipped(source), sink)
        connect_typed(m, queue.o, flipped(self.outputs))
        m.d.comb += [
            join.o.ready.eq(queue.ok),
            queue.enter.eq(join.o.valid & queue.ok),
            adders.a.eq(join.o.payload[0]),
            adders.b.eq(join.o.payload[1]),
            adders.valid.eq(queue.enter),
            queue.result.eq(adders.o),
        ]
        if self.layer.gradient:
            m.submodules.fork = fork = StreamFork(shape=words)
            connect_typed(m, flipped(self.gradients), fork.i)
            for source, sink in zip(fork.o, self.input_gradients, strict=True):
                connect_typed(m, source, flipped(sink))
        return m
