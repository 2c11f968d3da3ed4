"""Backward ways of a convolution: weight gradient and input gradient."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.schedule import REUSE, Schedule
from fanin.hdl.layers.input_gradient import InputGradient
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.weight_gradient import WeightGradient
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fork import StreamFork


def frames_ahead(schedule: Schedule, weights: WeightGradient) -> int:
    """Return the maximum lead of one backward way, in frames: those in the other way's blocks and pipeline."""
    return schedule.output_rows + weights.latency // REUSE + 2


class Backward(wiring.Component):
    """Weight gradient and, if the layer has one, input gradient, each with its own buffer of ``gradients``.

    The two ways wait for each other only at the shared input ``gradients``.

    Members
    -------
    ``gradients`` : In, stream of po words
        Gradients of the output.
    ``replay`` : In, stream of pi words
        The saved input.
    ``input_gradients`` : Out, stream of pi words
        Present if the layer has an input gradient.
    ``weight_address`` : Out, range(weight_words)
        Present if the layer has an input gradient.
    ``weights`` : In, ``weight_lanes`` words
        Weights, one cycle after their address. Present if the layer has an input gradient.
    ``velocity_address``, ``write_address`` : Out, range(weight_words)
    ``velocities`` : In, ``weight_lanes`` words
        Velocities, one cycle after their address. They include a write in the cycle of the address.
    ``write`` : Out(1)
        Write ``new_velocities`` to ``write_address``.
    ``new_velocities`` : Out, ``weight_lanes`` words
    ``finished`` : Out(1)
        Pulse: a frame's last weights have been read, and its last velocities are written in this cycle at the
        latest.

    Parameters
    ----------
    ``schedule`` : Schedule

    Latency
    -------
    A frame takes ``schedule.cycles``, or as long as its words take in or out.

    Source
    ------
    docs/systems/layers.md, "The convolution"; NADA, section III.
    """

    def __init__(self, *, schedule: Schedule):
        self.schedule = schedule
        words, address = data.ArrayLayout(WORD_BITS, schedule.weight_lanes), range(schedule.weight_words)
        members: dict[str, Any] = {
            "gradients": In(word_stream(schedule.p.po)),
            "replay": In(word_stream(schedule.p.pi)),
            "velocity_address": Out(address),
            "velocities": In(words),
            "write": Out(1),
            "write_address": Out(address),
            "new_velocities": Out(words),
            "finished": Out(1),
        }
        if schedule.layer.gradient:
            members["input_gradients"] = Out(word_stream(schedule.p.pi))
            members |= {"weight_address": Out(address), "weights": In(words)}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Connect both ways, or the weight gradient alone."""
        m = Module()
        m.submodules.weight_gradient = weights = WeightGradient(schedule=self.schedule)
        connect_typed(m, wiring.flipped(self.replay), weights.replay)
        m.d.comb += [
            self.velocity_address.eq(weights.velocity_address),
            weights.velocities.eq(self.velocities),
            self.write.eq(weights.write),
            self.write_address.eq(weights.write_address),
            self.new_velocities.eq(weights.new_velocities),
        ]
        if not self.schedule.layer.gradient:
            connect_typed(m, wiring.flipped(self.gradients), weights.gradients)
            m.d.comb += self.finished.eq(weights.finished)
            return m

        m.submodules.input_gradient = inputs = InputGradient(schedule=self.schedule)
        m.submodules.fork = fork = StreamFork(shape=self.gradients.payload.shape())
        connect_typed(m, wiring.flipped(self.gradients), fork.i)
        connect_typed(m, fork.o[0], weights.gradients)
        connect_typed(m, fork.o[1], inputs.gradients)
        connect_typed(m, inputs.input_gradients, wiring.flipped(self.input_gradients))
        m.d.comb += [self.weight_address.eq(inputs.weight_address), inputs.weights.eq(self.weights)]
        lead = frames_ahead(self.schedule, weights)
        join_finished(m, self.finished, lead, weights=weights.finished, inputs=inputs.finished)
        return m


def join_finished(m: Module, all_finished: Value, lead: int, **finished: Value) -> None:
    """Pulse ``all_finished`` for each frame that both ways have finished; a way may lead by ``lead`` frames."""
    counts = []
    for name, pulse in finished.items():
        m.submodules[f"{name}_finished"] = count = Credits(limit=lead)
        m.d.comb += [count.give.eq(pulse), count.take.eq(all_finished)]
        counts.append(count.ok)
    m.d.comb += all_finished.eq(counts[0] & counts[1])
