"""Dense layer with parameters in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.cnn.layers.schedule import Schedule
from fanin.hdl.layers.backward import frames_ahead, join_finished
from fanin.hdl.layers.batches import BatchControl
from fanin.hdl.layers.convolution import take_features
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.lines import Lines
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.parameter_memory import parameter_memory
from fanin.hdl.layers.streamed_gradient import StreamedInputGradient
from fanin.hdl.layers.streamed_update import StreamedUpdate
from fanin.hdl.layers.weight_gradient import WeightGradient
from fanin.hdl.layers.word_supply import WordSupply
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fork import StreamFork
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class StreamedDense(wiring.Component):
    """Dense layer with streamed parameters.

    Per frame, each weight is read once for each way, and each velocity is read and written. The layer requests
    a pass over weights or velocities when the first word of the frame arrives. Every step waits for its own
    word.

    Members
    -------
    ``features``, ``outputs``, ``gradients``, ``input_gradients``, ``save``, ``replay`` : streams of words
        In, out, in, out, out, in; see :func:`layer_members`.
    ``control`` : In, ``LayerControl``
    ``memory`` : Out, :func:`parameter_memory`
    ``updated`` : Out(1)
        Pulse: memory has acknowledged all of an update.
    ``done`` : Out(1)
        Since the last ``start``, every frame of the job has been counted and all updates are in memory.

    Parameters
    ----------
    ``layer`` : Dense
    ``parallelism`` : Parallelism

    Latency
    -------
    A frame takes the longest of three times: ``Schedule.cycles``, the transfer of its words, weights or
    velocities, and the interval between two reads of a velocity, with addition and write in between. An update
    takes one cycle per parameter plus 15, plus the time memory takes to answer and to acknowledge.

    Source
    ------
    docs/systems/layers.md, "Parameters in memory"; NADA, section IV-C.
    """

    def __init__(self, *, layer: Dense, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        self._schedule = Schedule(layer, parallelism)
        self._schedule.check()
        members = layer_members(layer, parallelism)
        del members["load"], members["dump"]
        memory = parameter_memory(self._schedule.weight_lanes, gradient=layer.gradient)
        super().__init__(members | {"memory": Out(memory)})

    @cached_property
    def _weight_gradient(self) -> WeightGradient:
        return WeightGradient(schedule=self._schedule, streamed=True)

    def elaborate(self, platform: Any) -> Module:
        """Connect the three ways of a convolution to streams; an update has the streams to itself."""
        m = Module()
        lanes = self._schedule.weight_lanes
        m.submodules.batches = batches = BatchControl()
        m.submodules.update = update = StreamedUpdate(lanes=lanes, parameters=self.layer.parameters)
        m.d.comb += [
            batches.control.eq(self.control),
            self.updated.eq(batches.updated),
            self.done.eq(batches.done),
            update.eta.eq(batches.eta),
            update.momentum.eq(self.control.momentum),
        ]
        updating = Signal()
        with m.If(batches.update):
            m.d.sync += updating.eq(1)
        with m.Elif(batches.updated):
            m.d.sync += updating.eq(0)
        gradient_begins = self._frame_begins(m, "gradient", self.gradients, self._schedule.p.po)
        admitted = self._forward(m, batches, update, updating)
        self._velocities(m, batches, update, updating)
        connect_typed(m, update.new_weights, wiring.flipped(self.memory.new_weights))
        requests = self.memory.ask
        m.d.comb += [
            batches.updated.eq(updating & self.memory.settled),
            requests.forward.eq(admitted | batches.update),
            requests.backward.eq(gradient_begins),
            requests.velocities.eq(gradient_begins | batches.update),
            requests.weights.eq(batches.update),
        ]
        return m

    def _frame_begins(self, m: Module, name: str, port: Any, lanes: int) -> Value:
        """Return whether ``port`` transfers the first word of a frame in this cycle."""
        shape = self.layer.input if port is self.features[0] else self.layer.output
        transfer = port.valid & port.ready
        nest = Nest(m, {"transfer": shape.words // lanes}, transfer, name=name)
        first = Signal(init=1, name=f"{name}_first")
        with m.If(transfer):
            m.d.sync += first.eq(nest.ends(nest.levels))
        return transfer & first

    def _forward(self, m: Module, batches: BatchControl, update: StreamedUpdate, updating: Signal) -> Value:
        """Drive the forward way; return a pulse for each frame that is admitted.

        ``arrived`` counts the frames whose first word has arrived, until their batch admits them; ``admitted``
        counts the admitted frames that the forward way has not begun.
        """
        schedule = self._schedule
        m.submodules.forward = forward = Forward(schedule=schedule, streamed=True)
        m.submodules.weights = weights = WordSupply(lanes=schedule.weight_lanes, latency=Lines.LATENCY)
        rows = schedule.feature_rows
        m.submodules.arrived = arrived = Credits(limit=rows + 1)
        m.submodules.admitted = admitted = Credits(limit=rows + 1)
        take_features(m, self, forward)
        connect_typed(m, forward.outputs, wiring.flipped(self.outputs))
        self._share(m, self.memory.forward, updating, weights.i, update.weights)
        m.d.comb += [
            arrived.give.eq(self._frame_begins(m, "feature", self.features[0], schedule.p.pi)),
            arrived.take.eq(arrived.ok & batches.admit),
            batches.admitted.eq(arrived.take),
            admitted.give.eq(arrived.take),
            admitted.take.eq(forward.admitted),
            forward.admit.eq(admitted.ok),
            forward.ok.eq(weights.ok),
            weights.take.eq(forward.take),
            forward.weights.eq(weights.o),
        ]
        return arrived.take

    def _velocities(self, m: Module, batches: BatchControl, update: StreamedUpdate, updating: Signal) -> None:
        """Drive the backward ways, and write the new velocities."""
        memory, lanes = self.memory, self._schedule.weight_lanes
        m.submodules.weight_gradient = gradient = self._weight_gradient
        m.submodules.velocities = velocities = WordSupply(lanes=lanes, latency=gradient.to_sums)
        m.submodules.new_velocities = queue = PipelineQueue(
            shape=data.ArrayLayout(WORD_BITS, lanes), latency=gradient.latency
        )
        connect_typed(m, wiring.flipped(self.replay), gradient.replay)
        self._share(m, memory.velocities, updating, velocities.i, update.velocities)
        new_velocities = memory.new_velocities
        m.d.comb += [
            gradient.ok.eq(velocities.ok & queue.ok),
            velocities.take.eq(gradient.take),
            queue.enter.eq(gradient.take),
            gradient.velocities.eq(velocities.o),
            queue.result.eq(gradient.new_velocities),
            new_velocities.valid.eq(queue.o.valid | update.new_velocities.valid),
            new_velocities.payload.eq(queue.o.payload),
            queue.o.ready.eq(new_velocities.ready),
            update.new_velocities.ready.eq(new_velocities.ready & ~queue.o.valid),
        ]
        with m.If(~queue.o.valid):
            m.d.comb += new_velocities.payload.eq(update.new_velocities.payload)
        if not self.layer.gradient:
            connect_typed(m, wiring.flipped(self.gradients), gradient.gradients)
            m.d.comb += batches.finished.eq(gradient.finished)
            return
        m.submodules.input_gradient = inputs = StreamedInputGradient(schedule=self._schedule)
        m.submodules.backward_weights = weights = WordSupply(lanes=lanes, latency=Lines.LATENCY)
        m.submodules.gradient_fork = fork = StreamFork(shape=self.gradients.payload.shape())
        connect_typed(m, wiring.flipped(self.gradients), fork.i)
        connect_typed(m, fork.o[0], gradient.gradients)
        connect_typed(m, fork.o[1], inputs.gradients)
        connect_typed(m, inputs.input_gradients, wiring.flipped(self.input_gradients[0]))
        connect_typed(m, wiring.flipped(memory.backward), weights.i)
        m.d.comb += [
            inputs.ok.eq(weights.ok),
            weights.take.eq(inputs.take),
            inputs.weights.eq(weights.o),
        ]
        lead = frames_ahead(self._schedule, gradient)
        join_finished(m, batches.finished, lead, weights=gradient.finished, inputs=inputs.finished)

    @staticmethod
    def _share(m: Module, source: Any, is_second: Signal, first_sink: Any, second_sink: Any) -> None:
        """Connect ``source`` to one of two sinks: to ``second_sink`` while ``is_second``."""
        for sink, enabled in (first_sink, ~is_second), (second_sink, is_second):
            m.d.comb += [sink.payload.eq(source.payload), sink.valid.eq(source.valid & enabled)]
            with m.If(enabled):
                m.d.comb += source.ready.eq(sink.ready)
