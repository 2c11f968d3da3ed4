"""Windows side by side, as channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import (
    REUSE,
    Parallelism,
    Storage,
    ceil_div,
    divisors,
)
from fanin.cnn.layers.schedule import Raster
from fanin.cnn.layers.window import Window


@dataclass(frozen=True, kw_only=True)
class Im2col(Window):
    """Every window's words side by side, as channels: what turns a convolution into a 1×1 one."""

    kind: ClassVar[str] = "im2col"
    ADDED: ClassVar[int] = 22  #: cycles from a row's last gradient until words of complete rows leave

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.kernel[0] * self.kernel[1] * self.input.c

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """Lanes of the lines, and of the stream of windows."""
        return {
            "layer": 1,
            "lane": p.pi,
            "window_lane": p.po,
            "gradient": int(self.gradient),
            "gradient_lane": self.gradient * p.pi,
        }

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every pair of stream widths."""
        for pi, po in product(divisors(self.input.c), divisors(self.output.c)):
            yield Parallelism(pi=pi, po=po)

    def compute_cycles(self, p: Parallelism) -> int:
        """Of its positions."""
        return self.output.h * self.output.w * self.position_cycles(p)

    def position_cycles(self, p: Parallelism) -> int:
        """Cycles of a window: pi words a cycle, or more if a sum were used again within 8 on the way back.

        Windows that lie ``down`` rows and ``right`` columns apart share inputs, which come ``earlier`` in the
        later one by so many steps.
        """
        (height, width), (vertical, horizontal) = self.kernel, self.stride
        groups = ceil_div(self.input.c, p.pi)
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

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows; on the way back rows that overlapping windows are added in, with a second port to leave by."""
        raster, period = self.raster(p), self.cycles(p)
        found = raster.memories(raster.ring(period))
        return found + self.gradient * raster.memories(raster.ring_back(period, self.ADDED), copies=2)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Those of its rows, and of a window."""
        (pause, _), (forward, backward) = super().lags(p), self.raster(p).lags
        pause += Fraction(1, self.output.h * self.output.w)
        return pause + forward, pause + backward

    def raster(self, p: Parallelism) -> Raster:
        """The input, as windows see it that are read ``pi`` words at a time."""
        return Raster(
            height=self.input.h,
            width=self.input.w,
            groups=self.input.c // p.pi,
            lanes=p.pi,
            columns=1,
            positions=self.output.w,
            steps=self.output.h,
            kernel=self.kernel,
            stride=self.stride,
            top=self.padding[0],
            left=self.padding[1],
        )
