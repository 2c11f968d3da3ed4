"""Average pooling: the mean of every window."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import avg_pool
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.arith.fp32 import FP32Multiplier
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.input_gradient import InputGradient
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.raster import scaled
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.pipeline_queue import PipelineQueue

_ONE_BITS = 0x3F800000  # 1.0 in binary32


class AvgPool(wiring.Component):
    """Average pooling: the mean of every window, by channel.

    The layer is a depthwise convolution of constant weights. Forward, all weights are 1, and the sums are then
    scaled. Backward, all weights are 1/n.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients`` : present if ``layer.gradient``

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.avg_pool.AvgPool``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    ``latency`` cycles from the last word that the first block of outputs waits for to the first output. A frame
    takes ``layer.cycles(parallelism)`` cycles, each way.

    Source
    ------
    docs/systems/layers.md, "Numbers", "The convolution".
    """

    def __init__(self, *, layer: avg_pool.AvgPool, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))

    @cached_property
    def _forward(self) -> Forward:
        return Forward(schedule=self.layer.schedule(self.parallelism))

    @property
    def latency(self) -> int:
        """Cycles of ``Forward``, plus a multiplication and a queue."""
        return self._forward.latency + FP32Multiplier.LATENCY + 1

    def elaborate(self, platform: Any) -> Module:
        """Scale the results of a forward way; the backward way is that of a convolution."""
        m = Module()
        share = int(self.layer.mean_factor.view("u4"))
        m.submodules.sums = sums = self._forward
        connect_typed(m, flipped(self.features[0]), sums.features)
        transfer = sums.outputs.valid & sums.outputs.ready
        means, latency = scaled(m, sums.outputs.payload, share, transfer, name="means")
        m.submodules.queue = queue = PipelineQueue(shape=self.outputs.payload.shape(), latency=latency)
        connect_typed(m, queue.o, flipped(self.outputs))
        m.d.comb += [
            sums.admit.eq(1),
            *(weight.eq(_ONE_BITS) for weight in sums.weights),
            sums.outputs.ready.eq(queue.ok),
            queue.enter.eq(transfer),
            queue.result.eq(means),
        ]
        if self.layer.gradient:
            m.submodules.back = back = InputGradient(schedule=sums.schedule)
            connect_typed(m, flipped(self.gradients), back.gradients)
            connect_typed(m, back.input_gradients, flipped(self.input_gradients[0]))
            m.d.comb += [weight.eq(share) for weight in back.weights]
        return m
