"""Maximum pooling over windows (layer kind ``max_pool``). Hardware: ``hdl/layers/max_pool.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, comparable
from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.latencies import LINES
from fanin.cnn.layers.layer import Parallelism, Storage
from fanin.cnn.layers.pool import Pool
from fanin.cnn.layers.raster import Raster
from fanin.cnn.layers.schedule import Way

#: Cycles from a window's word to the updated maximum: read of the maximum so far, comparison, selection. It is
#: the latency of the component ``Maxima``, which takes it from here.
LATENCY = 3
#: Cycles from a step backward to its terms: read of the pair, selection by the maximum's place.
TERM_LATENCY = LINES + 1


@dataclass(frozen=True, kw_only=True)
class MaxPool(Pool):
    """Pool that selects the largest word of every window, by channel.

    Of equal words the first in raster order is the maximum; subnormals are equal to 0. The first NaN of a
    window is its maximum. Padding is never a maximum.
    """

    kind: ClassVar[str] = "max_pool"
    component: ClassVar[str] = "max_pool.MaxPool"
    OPERATORS: ClassVar = {"input_gradient": {"add": 1}}
    LUTS: ClassVar = {
        "ultrascale": {"layer": 145, "lane": 309, "gradient": 150, "gradient_lane": 269},
        "ecp5": {"layer": 212, "lane": 670, "gradient": 225, "gradient_lane": 408},
    }

    def check(self) -> None:
        """Raise ValueError also if a window could see only padding."""
        super().check()
        height, width = self.kernel
        top, left, bottom, right = self.padding
        if max(top, bottom) >= height or max(left, right) >= width:
            limit = f"below the kernel, {height}×{width}"
            raise ValueError(f"padding {self.padding} must be {limit}: a window would see only padding")

    @property
    def saved_words(self) -> int:
        """Words saved: each maximum's place in its window, ky · kernel width + kx; 0 without gradient."""
        return self.output.words if self.gradient else 0

    def pairs(self, parallelism: Parallelism) -> Raster:
        """Return the raster of pairs: an output or its gradient, and the maximum's place in the window."""
        return replace(self.schedule(parallelism).outputs, lanes=2 * parallelism.po)

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memories of both passes.

        - Forward: input rows; the largest word so far, and its place, of each window of a round; rows of pairs
          of output and place.
        - Backward, with a gradient: rows of pairs of gradient and place; rows in which input gradients are
          summed.
        """
        schedule, pairs = self.schedule(parallelism), self.pairs(parallelism)
        place_bits = (self.kernel[0] * self.kernel[1] - 1).bit_length()
        largest = Memory(  # with a bit for each position: it has a maximum
            width=1 + parallelism.po * (WORD_BITS + place_bits), depth=schedule.round_steps(Way.FORWARD)
        )
        lines = schedule.features.memories(schedule.feature_rows)
        memories = (*lines, largest, *pairs.memories(schedule.result_rows))
        if not self.gradient:
            return memories
        sums = schedule.features.memories(schedule.input_gradient_rows, copies=2)
        return (*memories, *pairs.memories(schedule.output_rows), *sums)

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the input rows, the engine, and the rows of pairs.

        The outputs of the pairs go to the next layer, the places to memory.
        """
        schedule, builder = self.schedule(stage.parallelism), stage.parts
        rows = builder.row_ring("rows", sources[0], schedule.features, schedule.feature_rows, schedule.p.pi)
        results = builder.channel("results", schedule.result_rows)
        stage.forward_engine(schedule, rows, results, LINES + LATENCY)  # window read, then the comparison
        pairs = self.pairs(stage.parallelism)
        return stage.give_and_save(
            Source(builder.row_reader("largest words", results, pairs, 2 * schedule.p.po))
        )

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add the actors that pair gradients with the saved places, and sum them in rows."""
        places = [] if flows.replay is None else [flows.replay]
        schedule = self.schedule(stage.parallelism)
        input_gradients, _ = parts.input_gradient(stage.parts, schedule, gradients, TERM_LATENCY, *places)
        flows.input_gradients = [Source(input_gradients)]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames]:
        """Return the largest word of every window, and its place in the window as the saved word.

        A NaN replaces every number before it, and nothing replaces a NaN: see the class.
        """
        (x,) = inputs
        padded, inside = self.pad(x), self.pad(np.ones(x.shape, bool))
        best = np.full((len(x), self.output.h, self.output.w, self.output.c), -np.inf, np.float32)
        place = np.full(best.shape, -1)
        for number, tap in enumerate(self.taps()):
            word = self.window_view(padded, *tap)
            larger = np.isnan(word) | (comparable(word) > comparable(best)) | (place < 0)
            wins = self.window_view(inside, *tap) & ~np.isnan(best) & larger
            best, place = np.where(wins, word, best), np.where(wins, number, place)
        return best, place.astype(np.uint32).view(np.float32)

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the input gradient: each window's gradient goes to the place of its maximum."""
        place = replay.view(np.uint32).reshape(gradient.shape)
        terms = {
            tap: np.where(place == number, gradient, np.float32(0)) for number, tap in enumerate(self.taps())
        }
        return (self.scatter_add(kernels, len(gradient), terms),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the largest word of every window; the first of equals gets the gradient."""
        padded = self.padded64(torch, inputs[0], -torch.inf)
        return torch.nn.functional.max_pool2d(padded, self.kernel, self.stride).permute(0, 2, 3, 1)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add MaxPool."""
        graph.node("MaxPool", sources, **self.onnx_window())
