"""Convolution with training: grouped, depthwise and dense layers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.layer import Parallelism
from fanin.cnn.layers.schedule import Schedule
from fanin.hdl.layers.backward import Backward
from fanin.hdl.layers.batches import BatchControl
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.interface import Mode, layer_members
from fanin.hdl.layers.parameters import Parameters
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork


class Convolution(wiring.Component):
    """Layer with weights: y = x ∗ w forward, two gradients backward, and the update after a batch.

    The three ways run concurrently, each on its own frame and with its own multipliers. They share the memories
    of weights and velocities, each through its own ports.

    Members
    -------
    ``features``, ``outputs``, ``gradients``, ``input_gradients``, ``save``, ``replay`` : streams of words
        In, out, in, out, out, in; see :func:`layer_members`.
    ``control`` : In, ``LayerControl``
    ``load``, ``dump`` : In, Out, streams of words of 32 bits
        Weights in memory order, then velocities.
    ``updated`` : Out(1)
        Pulse: all parameters have been updated.
    ``done`` : Out(1)
        Since the last ``start``, every frame of the job has been counted and all updates are written.

    Parameters
    ----------
    ``layer`` : Conv
    ``parallelism`` : Parallelism

    Latency
    -------
    A frame takes ``Schedule.cycles``, or as long as its words take in or out, whichever is longer. ``latency``
    cycles from the last word that the first block waits for to the first word on ``outputs``.

    Source
    ------
    docs/systems/layers.md, "The convolution"; NADA, section III.
    """

    def __init__(self, *, layer: Conv, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        self._schedule = Schedule(layer, parallelism)
        self._schedule.check()
        super().__init__(layer_members(layer, parallelism))

    @cached_property
    def _forward(self) -> Forward:
        return Forward(schedule=self._schedule)

    @property
    def latency(self) -> int:
        """Cycles from the last word that the first block waits for to the first word on ``outputs``."""
        return self._forward.latency

    def elaborate(self, platform: Any) -> Module:
        """Connect the forward way, the backward ways, the parameters and the batch control."""
        m = Module()
        schedule = self._schedule
        m.submodules.forward = forward = self._forward
        m.submodules.backward = backward = Backward(schedule=schedule)
        m.submodules.parameters = parameters = Parameters(
            lanes=schedule.weight_lanes, depth=schedule.weight_words
        )
        m.submodules.batches = batches = BatchControl()
        connect_typed(m, take_features(m, self), forward.features)
        connect_typed(m, forward.outputs, wiring.flipped(self.outputs))
        connect_typed(m, wiring.flipped(self.gradients), backward.gradients)
        connect_typed(m, wiring.flipped(self.replay), backward.replay)
        connect_typed(m, wiring.flipped(self.load), parameters.load)
        connect_typed(m, parameters.dump, wiring.flipped(self.dump))
        m.d.comb += [
            parameters.forward_address.eq(forward.weight_address),
            forward.weights.eq(parameters.forward_weights),
            parameters.velocity_address.eq(backward.velocity_address),
            backward.velocities.eq(parameters.velocities),
            parameters.write.eq(backward.write),
            parameters.write_address.eq(backward.write_address),
            parameters.new_velocities.eq(backward.new_velocities),
        ]
        if self.layer.gradient:
            connect_typed(m, backward.input_gradients, wiring.flipped(self.input_gradients[0]))
            m.d.comb += [
                parameters.backward_address.eq(backward.weight_address),
                backward.weights.eq(parameters.backward_weights),
            ]
        m.d.comb += [
            batches.control.eq(self.control),
            forward.admit.eq(batches.admit),
            batches.admitted.eq(forward.admitted),
            batches.finished.eq(backward.finished),
            batches.updated.eq(parameters.updated),
            parameters.control.eq(self.control),
            parameters.update.eq(batches.update),
            parameters.eta.eq(batches.eta),
            self.updated.eq(parameters.updated),
            self.done.eq(batches.done & parameters.done),
        ]
        return m


def take_features(m: Module, layer: Any) -> Any:
    """Return the stream of a layer's features, which go to ``save``, too, in mode TRAIN."""
    features = layer.features[0]
    shape = features.payload.shape()
    m.submodules.fork = fork = StreamFork(shape=shape)
    m.submodules.save_slice = save_slice = RegisterSlice(shape=shape)
    connect_typed(m, wiring.flipped(features), fork.i)
    connect_typed(m, save_slice.o, wiring.flipped(layer.save))
    training = layer.control.mode == Mode.TRAIN
    m.d.comb += [
        save_slice.i.payload.eq(fork.o[1].payload),
        save_slice.i.valid.eq(fork.o[1].valid & training),
        fork.o[1].ready.eq(save_slice.i.ready | ~training),
    ]
    return fork.o[0]
