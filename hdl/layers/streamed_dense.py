"""Dense layer with parameters in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.hdl.layers.backward import frames_ahead, join_finished
from fanin.hdl.layers.batches import BatchControl
from fanin.hdl.layers.convolution import take_features
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.frame_groups import GroupGate
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

MINUS_ZERO = 1 << (WORD_BITS - 1)  # x ⊗ −0 is −0 for x = +0, and v ⊕ −0 is v


class StreamedDense(wiring.Component):
    """Dense layer with streamed parameters.

    Per group of ``parallelism.frames`` frames, each weight is read once for each way, and each velocity is read
    and written. The layer requests a pass over weights or velocities when the first word of the group arrives.
    Every step waits for its own word. Dummy frames complete the last group of a batch: their gradients are −0,
    which changes no velocity, and their results are removed.

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
    A group takes the longest of three times: ``Schedule.cycles``, the transfer of its words, weights or
    velocities, and the interval between two reads of a velocity, with addition and write in between. An update
    takes one cycle per parameter plus 15, plus the time memory takes to answer and to acknowledge.

    Source
    ------
    docs/systems/layers.md, "Parameters in memory"; NADA, section IV-C.
    """

    def __init__(self, *, layer: Dense, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        self._schedule = layer.schedule(parallelism)
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
        self._gates: list[GroupGate] = []
        lanes = self._schedule.weight_lanes
        m.submodules.batches = batches = BatchControl(group_frames=self.parallelism.frames)
        m.submodules.update = update = StreamedUpdate(lanes=lanes, parameters=self.layer.parameters)
        m.d.comb += [
            batches.control.eq(self.control),
            self.updated.eq(batches.updated),
            update.eta.eq(batches.eta),
            update.momentum.eq(self.control.momentum),
        ]
        updating = Signal()
        with m.If(batches.update):
            m.d.sync += updating.eq(1)
        with m.Elif(batches.updated):
            m.d.sync += updating.eq(0)
        gradients = self._group(m, "gradients", wiring.flipped(self.gradients), fill=MINUS_ZERO, backward=True)
        gradient_begins = self._group_begins(m, "gradient", gradients, self.layer.output.words)
        admitted = self._forward(m, batches, update, updating)
        self._velocities(m, batches, update, updating, gradients)
        connect_typed(m, update.new_weights, wiring.flipped(self.memory.new_weights))
        requests = self.memory.ask
        m.d.comb += [
            self.done.eq(batches.done & Cat(gate.done for gate in self._gates).all()),
            batches.updated.eq(updating & self.memory.settled),
            requests.forward.eq(admitted | batches.update),
            requests.backward.eq(gradient_begins),
            requests.velocities.eq(gradient_begins | batches.update),
            requests.weights.eq(batches.update),
        ]
        return m

    def _group(self, m: Module, name: str, i: Any, *, fill: int | None, backward: bool) -> Any:
        """Return the stream of ``i`` with the dummy frames inserted, or without them if ``fill`` is None."""
        if self.parallelism.frames == 1:
            return i
        words = (self.layer.output if name in ("outputs", "gradients") else self.layer.input).words
        lanes = len(i.payload)
        m.submodules[f"{name}_gate"] = gate = GroupGate(
            lanes=lanes,
            transfers=words // lanes,
            group_frames=self.parallelism.frames,
            fill=fill,
            backward=backward,
        )
        self._gates.append(gate)
        connect_typed(m, i, gate.i)
        m.d.comb += gate.control.eq(self.control)
        return gate.o

    def _group_begins(self, m: Module, name: str, port: Any, words: int) -> Value:
        """Return whether ``port`` transfers the first word of a group of frames in this cycle.

        ``words``: words of a frame.
        """
        transfer = port.valid & port.ready
        transfers = self.parallelism.frames * words // len(port.payload)
        nest = Nest(m, {"transfer": transfers}, transfer, name=name)
        first = Signal(init=1, name=f"{name}_first")
        with m.If(transfer):
            m.d.sync += first.eq(nest.ends(nest.levels))
        return transfer & first

    def _forward(self, m: Module, batches: BatchControl, update: StreamedUpdate, updating: Signal) -> Value:
        """Drive the forward way; return a pulse for each group of frames that is admitted.

        ``arrived`` counts the groups whose first word has arrived, until their batch admits them; ``admitted``
        counts the admitted groups that the forward way has not begun.
        """
        schedule = self._schedule
        m.submodules.forward = forward = Forward(schedule=schedule, streamed=True)
        m.submodules.weights = weights = self._supply(Lines.LATENCY)
        rows = schedule.feature_rows
        m.submodules.arrived = arrived = Credits(limit=rows + 1)
        m.submodules.admitted = admitted = Credits(limit=rows + 1)
        features = self._group(m, "features", take_features(m, self), fill=0, backward=False)
        connect_typed(m, features, forward.features)
        outputs = self._group(m, "outputs", forward.outputs, fill=None, backward=False)
        connect_typed(m, outputs, wiring.flipped(self.outputs))
        self._share(m, self.memory.forward, updating, weights.i, update.weights)
        m.d.comb += [
            arrived.give.eq(self._group_begins(m, "feature", features, self.layer.input.words)),
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

    def _supply(self, latency: int) -> WordSupply:
        """Return the queue of weights for a way that uses each of them for every frame of a group."""
        hold = self.parallelism.frames > 1
        return WordSupply(lanes=self._schedule.weight_lanes, latency=latency, hold=hold)

    def _velocities(
        self, m: Module, batches: BatchControl, update: StreamedUpdate, updating: Signal, gradients: Any
    ) -> None:
        """Drive the backward ways, and write the new velocities."""
        memory, lanes = self.memory, self._schedule.weight_lanes
        m.submodules.weight_gradient = gradient = self._weight_gradient
        m.submodules.velocities = velocities = WordSupply(lanes=lanes, latency=gradient.to_sums)
        m.submodules.new_velocities = queue = PipelineQueue(
            shape=data.ArrayLayout(WORD_BITS, lanes), latency=gradient.latency
        )
        replay = self._group(m, "replay", wiring.flipped(self.replay), fill=0, backward=True)
        connect_typed(m, replay, gradient.replay)
        self._share(m, memory.velocities, updating, velocities.i, update.velocities)
        new_velocities = memory.new_velocities
        m.d.comb += [
            gradient.ok.eq(velocities.ok),
            gradient.room.eq(queue.ok),
            velocities.take.eq(gradient.take),
            queue.enter.eq(gradient.give),
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
            connect_typed(m, gradients, gradient.gradients)
            m.d.comb += batches.finished.eq(gradient.finished)
            return
        m.submodules.input_gradient = inputs = StreamedInputGradient(schedule=self._schedule)
        m.submodules.backward_weights = weights = self._supply(Lines.LATENCY)
        m.submodules.gradient_fork = fork = StreamFork(shape=self.gradients.payload.shape())
        connect_typed(m, gradients, fork.i)
        connect_typed(m, fork.o[0], gradient.gradients)
        connect_typed(m, fork.o[1], inputs.gradients)
        sent = self._group(m, "input_gradients", inputs.input_gradients, fill=None, backward=True)
        connect_typed(m, sent, wiring.flipped(self.input_gradients[0]))
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
