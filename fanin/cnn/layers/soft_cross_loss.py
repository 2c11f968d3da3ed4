"""Softmax with cross-entropy loss (layer kind ``soft_cross_loss``).

Hardware: ``hdl/layers/softmax_loss.py``. tests/hdl/layers/test_softmax_loss.py measures its latencies and the
exact cycles of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow.graph import Pattern, Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import ADDER, MULTIPLIER, RESULTS
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, ceil_div, memory

LABELS_PORT = 1  #: index of the input with the labels
INTERVAL = 8  #: cycles per exponential, and per term of their sum: all use one set of operators
#: Cycles of a frame in addition to transfers and ``INTERVAL`` per logit: latency of one exponential, the last
#: term of the sum, and the reciprocal. The test of exact cycles holds it.
PAUSE = 199
SOFTMAX = 1 + MULTIPLIER  #: cycles from a row's address to e ⊗ 1/Σe; 1: read of e
#: Cycles from a label to its word p of the softmax, and to the gradient p ⊖ label; 1 of each: PipelineQueue.
LATENCY, LATENCY_GRADIENT = SOFTMAX + 1, SOFTMAX + ADDER + 1


def levels(lanes: int) -> int:
    """Return the levels of a balanced tree over ``lanes`` words: the greatest logit is found by such a tree."""
    return (lanes - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class SoftCrossLoss(Layer):
    """Softmax of the logits, and gradient of the cross-entropy with the one-hot labels, the second input.

    The output is the softmax. The host has the labels, and computes accuracy and loss.
    """

    kind: ClassVar[str] = "soft_cross_loss"
    component: ClassVar[str] = "softmax_loss.SoftmaxLoss"
    # Exponentials, their sum and its reciprocal are computed one by one.
    OPERATORS: ClassVar = {
        "forward": {"mul": 1},
        "input_gradient": {"add": 1},
        "fixed": {"add": 3, "mul": 2},
    }
    LUTS: ClassVar = {"ultrascale": {"layer": 1266, "lane": 301}, "ecp5": {"layer": 1169, "lane": 524}}

    def check(self) -> None:
        """Raise ValueError if labels and logits differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"logits are {self.inputs[0]}, labels {self.inputs[1]}")

    @property
    def delay(self) -> Fraction:
        """Delay of a whole frame, since outputs need the sum of all exponentials."""
        return Fraction(1)

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame: logits enter, exponentials are summed one by one, results leave.

        A row has ``po`` words. Rows enter and leave one a cycle.
        """
        rows = ceil_div(self.input.words, parallelism.po)
        return 2 * rows + INTERVAL * self.input.words + levels(parallelism.po) + PAUSE

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memory of the logits, which exponentials overwrite."""
        return (memory(self.input.words, parallelism.po),)

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave: after a whole frame."""
        return inputs[0] + self.cycles(parallelism)

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add an actor that takes a frame's logits, then takes its labels while it gives the outputs."""
        rows = stage.transfers
        intervals = np.ones(2 * rows)
        intervals[rows - 1] = self.cycles(stage.parallelism) - 2 * rows + 1
        actor = stage.parts.actor("forward", 2 * rows, intervals)
        inputs_taken = Pattern.of(np.minimum(np.arange(2 * rows) + 1, rows))
        outputs_given = Pattern.of(np.maximum(np.arange(2 * rows) + 1 - rows, 0))
        stage.graph.take(actor, sources[1 - LABELS_PORT], inputs_taken)
        stage.graph.take(actor, sources[LABELS_PORT], outputs_given)
        outputs = stage.parts.channel("outputs", RESULTS)
        stage.graph.give(actor, outputs, outputs_given, delay=LATENCY)
        flows = Flows(Source(outputs))
        if self.gradient:
            gradients = stage.parts.channel("input gradients", RESULTS)
            stage.graph.give(actor, gradients, outputs_given, delay=LATENCY_GRADIENT)
            flows.input_gradients = [Source(gradients)]
        return flows

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames]:
        """Return the softmax p, and the gradient of the logits, p ⊖ label."""
        logits, labels = inputs
        x = logits.reshape(len(logits), -1)
        e = kernels.exp(kernels.add(x, -np.max(x, axis=1, keepdims=True)))
        total = kernels.fold(np.ascontiguousarray(e.T), np.zeros(len(e), np.float32))
        softmax = kernels.multiply(e, kernels.reciprocal(total)[:, None]).reshape(logits.shape)
        return softmax, kernels.add(softmax, -labels)

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient of the logits, which ``golden`` has computed and saved."""
        shape = self.input
        return (replay.reshape(len(replay), shape.h, shape.w, shape.c),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the softmax."""
        x = inputs[0]
        return torch.softmax(x.flatten(1), 1).reshape(x.shape)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add Softmax of the flattened logits, without the labels."""
        graph.node("Softmax", [graph.node("Flatten", sources[:LABELS_PORT], part="flat", axis=1)], axis=1)
