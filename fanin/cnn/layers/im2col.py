"""Rearrangement of windows into channels (layer kind ``im2col``). Hardware: ``hdl/layers/im2col.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.engine import completed, window_rows
from fanin.cnn.flow.graph import Pattern, Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import GRADIENT_ROWS, LINES, PLACES
from fanin.cnn.layers.layer import REUSE, Parallelism, Storage, ceil_div, divisors
from fanin.cnn.layers.raster import Raster
from fanin.cnn.layers.schedule import ENGINE
from fanin.cnn.layers.window import Window

#: Cycles from a row's last gradient until words of complete rows leave. tests/hdl/layers/test_costs.py compares
#: it with the components ``WindowPlaces`` and ``GradientRows``.
GRADIENT_LATENCY = PLACES + GRADIENT_ROWS


@dataclass(frozen=True, kw_only=True)
class Im2col(Window):
    """Layer that turns the words of each window into channels, for a 1×1 convolution downstream."""

    kind: ClassVar[str] = "im2col"
    component: ClassVar[str] = "im2col.Im2col"
    OPERATORS: ClassVar = {"input_gradient": {"add": 1}}
    LUTS: ClassVar = {
        "ultrascale": {"layer": 56, "lane": 63, "window_lane": 34, "gradient": 241, "gradient_lane": 89},
        "ecp5": {"lane": 219, "gradient": 297, "gradient_lane": 212},
    }

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.kernel[0] * self.kernel[1] * self.input.c

    def logic_units(self, parallelism: Parallelism) -> Mapping[str, int]:
        """Return the units.

        ``lane``: words read of the rows; ``window_lane``: words of the stream of windows.
        """
        return {
            "layer": 1,
            "lane": parallelism.pi,
            "window_lane": parallelism.po,
            "gradient": int(self.gradient),
            "gradient_lane": self.gradient * parallelism.pi,
        }

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every pair of stream widths."""
        for pi, po in product(divisors(self.input.c), divisors(self.output.c)):
            yield Parallelism(pi=pi, po=po)

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of all positions of a frame."""
        return self.output.h * self.output.w * self.position_cycles(parallelism)

    def position_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a window: ``pi`` words a cycle, more if gradients would reuse a sum too early.

        A sum may be used again after ``REUSE`` cycles. Two windows ``down`` rows and ``right`` columns apart
        share inputs; the later one starts ``positions`` periods after the earlier one. It reaches a shared
        input ``earlier`` steps sooner after its start than the earlier window does after its own start. Hence
        positions · period ≥ REUSE + earlier.
        """
        (height, width), (vertical, horizontal) = self.kernel, self.stride
        groups = ceil_div(self.input.c, parallelism.pi)
        period = height * width * groups
        if not self.gradient:
            return period
        for down in range(min(ceil_div(height, vertical), self.output.h)):
            reach = min(ceil_div(width, horizontal), self.output.w)
            for right in range(1 - reach, reach):
                positions = down * self.output.w + right
                earlier = (down * vertical * width + right * horizontal) * groups
                if positions > 0:
                    period = max(period, ceil_div(REUSE + earlier, positions))
        return period

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the ring of input rows; with a gradient also rows that sum windows, with two read ports."""
        raster, period = self.raster(parallelism), self.cycles(parallelism)
        rows = raster.memories(raster.ring(period))
        return rows + self.gradient * raster.memories(raster.ring_back(period, GRADIENT_LATENCY), copies=2)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags: those of the ring of rows, and one window."""
        (lag, _), (forward, backward) = super().lags(parallelism), self.raster(parallelism).lags
        lag += Fraction(1, self.output.h * self.output.w)
        return lag + forward, lag + backward

    def raster(self, parallelism: Parallelism) -> Raster:
        """Return the raster of the input, with windows read ``pi`` words a cycle."""
        return Raster(
            height=self.input.h,
            width=self.input.w,
            groups=self.input.c // parallelism.pi,
            lanes=parallelism.pi,
            columns=1,
            positions=self.output.w,
            steps=self.output.h,
            kernel=self.kernel,
            stride=self.stride,
            top=self.padding[0],
            left=self.padding[1],
        )

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave: window by window, once their rows have arrived."""
        raster = self.raster(parallelism)
        ready = np.repeat(window_rows(raster, inputs[0]), raster.positions)
        return paced(
            ready + ENGINE, max(ceil_div(self.output.c, parallelism.po), self.position_cycles(parallelism))
        )

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: row by row, once all windows that saw a row have added to it."""
        added = paced(arrivals, self.position_cycles(parallelism))[self.output.w - 1 :: self.output.w]
        return paced(
            completed(self.raster(parallelism), added + ENGINE), ceil_div(self.input.c, parallelism.pi)
        )

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the ring of input rows, an actor that walks over all windows, and a Resize to ``po``."""
        lanes, builder, words = stage.parallelism, stage.parts, self.output.words
        raster = self.raster(lanes)
        rows = builder.row_ring("rows", sources[0], raster, raster.ring(self.cycles(lanes)), lanes.pi)
        walk = builder.actor("forward", words // lanes.pi)
        need, done = self._rows_by_step(raster)
        stage.graph.take(walk, rows, need, done, parts.BLOCK_FREED + 1)
        windows = builder.channel("windows", LINES + 2)  # places of a PipelineQueue of LINES cycles
        stage.graph.give(walk, windows, delay=LINES + 2)
        return Flows(builder.resize("outputs", Source(windows), words, lanes.pi, lanes.po))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add an actor that walks over all windows, and rows in which it adds them."""
        lanes, builder, words = stage.parallelism, stage.parts, self.output.words
        raster = self.raster(lanes)
        sums = builder.channel(
            "rows of input gradients", raster.ring_back(self.cycles(lanes), GRADIENT_LATENCY)
        )
        resized = builder.resize("gradients", gradients, words, lanes.po, lanes.pi)
        window_steps = self.output.c // lanes.pi
        intervals = parts.position_intervals(window_steps, self.position_cycles(lanes))
        walk = builder.actor("back", words // lanes.pi, intervals)
        need, done = self._rows_by_step(raster)
        stage.graph.take(walk, resized)
        stage.graph.give(walk, sums, done, need, parts.GRADIENT_ROW_LATENCY + 1)
        flows.input_gradients = [Source(builder.row_reader("input gradients", sums, raster, lanes.pi))]

    def _rows_by_step(self, raster: Raster) -> tuple[Pattern, Pattern]:
        """Return, by step, the number of input rows that must be present, and of those no longer needed."""
        row_steps = self.output.words // raster.lanes // self.output.h
        rows = range(raster.steps)
        needed_rows = np.repeat([raster.last(row) + 1 for row in rows], row_steps)
        freed_rows = np.repeat([raster.first(row) for row in rows], row_steps)
        freed_rows[row_steps - 1 :: row_steps] = [raster.first(row + 1) for row in rows]
        return Pattern.of(needed_rows, raster.height), Pattern.of(freed_rows, raster.height)

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return windows as channels: (ky, kx, c)."""
        padded = self.pad(inputs[0])
        return np.concatenate([self.window_view(padded, *tap) for tap in self.taps()], -1), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the input gradient, the sum over overlapping windows."""
        terms = np.split(gradient, self.kernel[0] * self.kernel[1], axis=-1)
        return (self.scatter_add(kernels, len(gradient), dict(zip(self.taps(), terms, strict=True))),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return windows as channels (ky, kx, c); PyTorch's own order is (c, ky, kx)."""
        (x,), shape = inputs, self.output
        columns = torch.nn.functional.unfold(self.padded64(torch, x), self.kernel, stride=self.stride)
        columns = columns.reshape(len(x), self.input.c, -1, shape.h, shape.w)
        return columns.permute(0, 3, 4, 2, 1).reshape(len(x), shape.h, shape.w, shape.c)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add a Conv whose weights select words: output channel (ky, kx, c) has a one at its place."""
        (rows, columns), c = self.kernel, self.input.c
        identity = np.eye(rows * columns * c, dtype=np.float32).reshape(-1, rows, columns, c)
        selection = graph.constant("weights", np.ascontiguousarray(identity.transpose(0, 3, 1, 2)))
        graph.node("Conv", [*sources, selection], group=1, **self.onnx_window())
