"""Average pooling over windows (layer kind ``avg_pool``). Hardware: ``hdl/layers/avg_pool.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, inverse
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import LINES, MULTIPLIER
from fanin.cnn.layers.layer import Parallelism, Storage
from fanin.cnn.layers.pool import Pool
from fanin.cnn.layers.schedule import Way


@dataclass(frozen=True, kw_only=True)
class AvgPool(Pool):
    """Pool that computes the mean of every window, by channel."""

    kind: ClassVar[str] = "avg_pool"
    component: ClassVar[str] = "avg_pool.AvgPool"
    # A depthwise convolution with scaled sums.
    OPERATORS: ClassVar = {"forward": {"mac": 1, "mul": 1}, "input_gradient": {"mac": 1}}
    LUTS: ClassVar = {
        "ultrascale": {"layer": 173, "lane": 164, "gradient": 123, "gradient_lane": 185},
        "ecp5": {"layer": 248, "lane": 253, "gradient": 256, "gradient_lane": 228},
    }

    @property
    def mean_factor(self) -> np.float32:
        """RN(1 / (kh · kw)), by which sums and gradients are multiplied."""
        return inverse(self.kernel[0] * self.kernel[1])

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memories of a convolution without a weight gradient."""
        schedule = self.schedule(parallelism)
        back = schedule.memories(Way.INPUT_GRADIENT) if self.gradient else ()
        return schedule.memories(Way.FORWARD) + back

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the windows' sums and a multiplier."""
        sums = stage.windows(sources[0], self.schedule(stage.parallelism))
        return Flows(Source(stage.pipeline_queue("mean", [Source(sums)], MULTIPLIER)))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add the multiplier, and rows in which products are summed."""
        schedule = self.schedule(stage.parallelism)
        term_latency = LINES + MULTIPLIER  # from a step: read of the gradient, product with ``mean_factor``
        input_gradients, _ = parts.input_gradient(stage.parts, schedule, gradients, term_latency)
        flows.input_gradients = [Source(input_gradients)]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return the mean of every window, including padding."""
        padded = self.pad(inputs[0])
        terms = np.stack([self.window_view(padded, *tap) for tap in self.taps()])
        rows = terms.reshape(len(terms), -1)
        total = kernels.fold(rows, np.zeros(rows.shape[1], np.float32))
        return kernels.multiply(total, self.mean_factor).reshape(terms.shape[1:]), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the input gradient. Every input of a window gets an equal part of the window's gradient."""
        term = kernels.multiply(gradient, self.mean_factor)
        return (self.scatter_add(kernels, len(gradient), dict.fromkeys(self.taps(), term)),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the mean of every window, including padding."""
        padded = self.padded64(torch, inputs[0])
        return torch.nn.functional.avg_pool2d(padded, self.kernel, self.stride).permute(0, 2, 3, 1)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add AveragePool, including padding."""
        graph.node("AveragePool", sources, count_include_pad=1, **self.onnx_window())
