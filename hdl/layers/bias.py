"""Bias: one trained word per channel."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import bias
from fanin.cnn.layers.layer import REUSE, Parallelism
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.batches import BatchControl
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.parameters import Parameters
from fanin.hdl.layers.raster import may_reuse
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class Bias(wiring.Component):
    """Bias: adds a trained word to every word of its channel. The gradient passes, and its sums train the bias.

    Members
    -------
    ``features``, ``outputs``, ``gradients``, ``control`` : interface of a layer
    ``load``, ``dump``, ``updated``, ``done`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``input_gradients`` : present if ``layer.gradient``

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.bias.Bias``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    9 cycles forward, 1 backward. Forward a transfer a cycle; backward a position takes max(c / po, 8) cycles.
    The velocities include a gradient 8 cycles after its arrival. Batches and updates take the cycles of
    ``BatchControl`` and ``Parameters``.

    Source
    ------
    docs/systems/layers.md, "Numbers", "Training".
    """

    def __init__(self, *, layer: bias.Bias, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))
        shape = layer.input
        self._rows = shape.c // parallelism.po
        self._levels = {"position": shape.h * shape.w, "row": self._rows}

    def elaborate(self, platform: Any) -> Module:
        """Connect both ways, the batch control and the parameters."""
        m = Module()
        m.submodules.batches = batches = BatchControl()
        m.submodules.parameters = parameters = Parameters(lanes=self.parallelism.po, depth=self._rows)
        connect_typed(m, flipped(self.load), parameters.load)
        connect_typed(m, parameters.dump, flipped(self.dump))
        m.d.comb += [
            batches.control.eq(self.control),
            parameters.control.eq(self.control),
            parameters.update.eq(batches.update),
            parameters.eta.eq(batches.eta),
            batches.updated.eq(parameters.updated),
            self.updated.eq(parameters.updated),
            self.done.eq(batches.done & parameters.done),
        ]
        self._forward(m, batches, parameters)
        self._backward(m, batches, parameters)
        return m

    def _forward(self, m: Module, batches: BatchControl, parameters: Parameters) -> None:
        """Add biases: a word waits one cycle for its bias, a frame's first word also for its batch."""
        (features,) = self.features
        words = features.payload.shape()
        transfer = features.valid & features.ready
        nest = Nest(m, self._levels, transfer, name="forward")
        in_frame = Signal()  # words of the frame have been taken
        with m.If(transfer):
            m.d.sync += in_frame.eq(~nest.ends(self._levels))
        m.submodules.adders = adders = shared(AdderArray(lanes=self.parallelism.po))
        m.submodules.queue = queue = PipelineQueue(shape=words, latency=1 + adders.latency)
        connect_typed(m, queue.o, flipped(self.outputs))
        m.d.comb += [
            features.ready.eq(queue.ok & (in_frame | batches.admit)),
            batches.admitted.eq(transfer & ~in_frame),
            parameters.forward_address.eq(nest.walk({"row": 1}, name="row")),
            adders.a.eq(delayed(m, features.payload, 1, name="word")[1]),
            adders.b.eq(parameters.forward_weights),
            adders.valid.eq(delayed(m, transfer, 1, name="entered", reset_less=False)[1]),
            queue.enter.eq(transfer),
            queue.result.eq(adders.o),
        ]

    def _backward(self, m: Module, batches: BatchControl, parameters: Parameters) -> None:
        """Fold the gradients over the positions of all frames of a batch, in the velocities' memory."""
        gradients = self.gradients
        transfer = gradients.valid & gradients.ready
        nest = Nest(m, self._levels, transfer, name="backward")
        may_fold = may_reuse(m, transfer & nest.ends(["row"]), self._rows)
        row = nest.walk({"row": 1}, name="row")
        if self.layer.gradient:
            m.submodules.passed = passed = RegisterSlice(shape=gradients.payload.shape())
            connect_typed(m, passed.o, flipped(self.input_gradients[0]))
            m.d.comb += [
                passed.i.payload.eq(gradients.payload),
                passed.i.valid.eq(gradients.valid & may_fold),
                gradients.ready.eq(passed.i.ready & may_fold),
            ]
        else:
            m.d.comb += gradients.ready.eq(may_fold)
        m.submodules.velocity_adders = adders = shared(AdderArray(lanes=self.parallelism.po))
        write = delayed(m, transfer, REUSE, name="write", reset_less=False)
        m.d.comb += [
            parameters.velocity_address.eq(row),
            adders.a.eq(parameters.velocities),
            adders.b.eq(delayed(m, gradients.payload, 1, name="gradient")[1]),
            adders.valid.eq(write[1]),
            parameters.write.eq(write[-1]),
            parameters.write_address.eq(delayed(m, row, REUSE, name="written")[-1]),
            parameters.new_velocities.eq(adders.o),
            batches.finished.eq(write[-1] & delayed(m, nest.ends(self._levels), REUSE, name="ends")[-1]),
        ]
