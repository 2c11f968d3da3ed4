"""Base class of pools over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fanin.cnn.flow.engine import block_gradients, block_outputs
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.conv import schedule_of
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import REUSE, Parallelism, ceil_div
from fanin.cnn.layers.schedule import Schedule
from fanin.cnn.layers.window import Window


@dataclass(frozen=True, kw_only=True)
class Pool(Window):
    """Base class of pools: each window yields one word per channel, like a depthwise convolution's."""

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame, kh·kw · max(oh·ow·⌈c / po⌉, REUSE).

        Each tap of the window is a round over all outputs. An accumulator takes one word a round, and a round
        takes at least ``REUSE`` cycles.
        """
        outputs = self.output.h * self.output.w * ceil_div(self.input.c, parallelism.po)
        return self.kernel[0] * self.kernel[1] * max(outputs, REUSE)

    def schedule(self, parallelism: Parallelism) -> Schedule:
        """Return the schedule of a depthwise convolution of the same window, with ``po`` parallel channels."""
        convolution = DepthwiseConv(
            inputs=self.inputs,
            gradient=self.gradient,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            output_channels=self.input.c,
            groups=self.input.c,
        )
        return schedule_of(convolution, Parallelism(poc=parallelism.po, pi=parallelism.pi, po=parallelism.po))

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags of the schedule."""
        return self.schedule(parallelism).lags

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave, block by block."""
        return block_outputs(self.schedule(parallelism), inputs[0], ceil_div(self.output.c, parallelism.po))

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: row by row, once all windows that saw a row have added to it."""
        return paced(
            block_gradients(self.schedule(parallelism), arrivals), ceil_div(self.input.c, parallelism.pi)
        )
