"""Average pooling over a whole feature map (layer kind ``global_avg_pool``).

Hardware: ``hdl/layers/global_pool.py``. tests/hdl/layers/test_global_pool.py measures its latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Pattern, Source, at_first, at_last
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, inverse
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import MULTIPLIER
from fanin.cnn.layers.layer import PIPELINE, REUSE, Layer, Parallelism, Shape, Storage, ceil_div, memory

#: Cycles from a word of the last position to its mean: sum (``Fold``), then the product with ``mean_factor``.
#: The PipelineQueue adds one.
LATENCY = REUSE + MULTIPLIER


@dataclass(frozen=True, kw_only=True)
class GlobalAvgPool(Layer):
    """Pool that computes the mean of every channel."""

    kind: ClassVar[str] = "global_avg_pool"
    component: ClassVar[str] = "global_pool.GlobalAvgPool"
    onnx: ClassVar[str] = "GlobalAveragePool"
    OPERATORS: ClassVar = {"forward": {"add": 1, "mul": 1}, "input_gradient": {"mul": 1}}
    LUTS: ClassVar = {
        "ultrascale": {"layer": 52, "lane": 83, "gradient": 37, "gradient_lane": 23},
        "ecp5": {"lane": 135, "gradient": 135, "gradient_lane": 3},
    }

    @property
    def output(self) -> Shape:
        """Shape of one position."""
        return Shape(1, 1, self.input.c)

    @property
    def delay(self) -> Fraction:
        """Delay of a whole frame."""
        return Fraction(1)

    @property
    def positions(self) -> int:
        """Positions of the input: number of words of each channel's mean."""
        return self.input.h * self.input.w

    @property
    def mean_factor(self) -> np.float32:
        """RN(1 / positions), by which sums and gradients are multiplied."""
        return inverse(self.positions)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags: a whole frame more than other layers, both ways."""
        lag, _ = super().lags(parallelism)
        return lag + 1, lag + 1

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame, h·w · max(⌈c / po⌉, REUSE).

        Every position adds to each channel's sum, and an accumulator takes a term every ``REUSE`` cycles.
        """
        return self.positions * max(ceil_div(self.input.c, parallelism.po), REUSE)

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memory of a sum per channel; with a gradient also that of two frames' scaled gradients.

        The gradients of one frame arrive while those of the other are sent.
        """
        return (memory(self.input.c, parallelism.po),) + self.gradient * (
            memory(2 * self.input.c, parallelism.po),
        )

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave: after the last position."""
        return inputs[0][-1:] + PIPELINE + ceil_div(self.output.c, parallelism.po)

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: position by position."""
        return paced(np.repeat(arrivals + PIPELINE, self.positions), ceil_div(self.input.c, parallelism.pi))

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add an actor that sums, and gives means at the last position."""
        groups, positions = stage.groups, self.positions
        actor = stage.parts.actor("sums", positions * groups, parts.position_intervals(groups, REUSE))
        channel = stage.parts.channel("means", LATENCY + 2)  # places of a PipelineQueue
        # Means given, by firing: one per firing of the frame's last position.
        means = Pattern.of(np.maximum(np.arange(positions * groups) - (positions - 1) * groups + 1, 0))
        stage.graph.take(actor, sources[0])
        stage.graph.give(actor, channel, means, delay=LATENCY + 1)
        return Flows(Source(channel))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add a buffer for the scaled gradients of two frames: one arrives, one is sent at every position."""
        groups, graph = stage.groups, stage.graph
        words = self.positions * groups
        scaler, frames = stage.parts.actor("takes gradients", groups), stage.parts.channel("shares", 2)
        graph.take(scaler, gradients)
        graph.give(scaler, frames, at_last(groups), at_first(groups), MULTIPLIER + 1)
        sender, channel = stage.parts.actor("back", words), stage.parts.channel("input gradients", 1, 0)
        graph.take(sender, frames, at_first(words), at_last(words))
        graph.give(sender, channel)
        flows.input_gradients = [Source(channel)]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return the mean of every channel."""
        (x,) = inputs
        terms = np.swapaxes(x.reshape(len(x), self.positions, -1), 0, 1)
        total = kernels.fold(terms.reshape(self.positions, -1), np.zeros(len(x) * self.input.c, np.float32))
        return kernels.multiply(total, self.mean_factor).reshape(len(x), 1, 1, -1), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the scaled gradient for every input: a fold of one term, so that none is −0."""
        scaled = kernels.add(np.zeros_like(gradient), kernels.multiply(gradient, self.mean_factor))
        return (np.tile(scaled, (1, self.input.h, self.input.w, 1)),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the mean of every channel."""
        return inputs[0].mean((1, 2), keepdim=True)
