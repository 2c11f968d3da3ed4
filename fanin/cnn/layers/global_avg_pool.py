"""The mean of every channel."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import (
    REUSE,
    Layer,
    Parallelism,
    Shape,
    Storage,
    ceil_div,
    memory,
)


@dataclass(frozen=True, kw_only=True)
class GlobalAvgPool(Layer):
    """The mean of every channel."""

    kind: ClassVar[str] = "global_avg_pool"

    @property
    def output(self) -> Shape:
        """One position."""
        return Shape(1, 1, self.input.c)

    @property
    def delay(self) -> Fraction:
        """A whole frame."""
        return Fraction(1)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """A whole frame, too."""
        pause, _ = super().lags(p)
        return pause + 1, pause + 1

    def compute_cycles(self, p: Parallelism) -> int:
        """h·w·max(c/po, 8): every position uses each channel's sum."""
        return self.input.h * self.input.w * max(ceil_div(self.input.c, p.po), REUSE)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """A sum per channel; on the way back two shares per channel: one comes in while one is handed on."""
        return (memory(self.input.c, p.po),) + self.gradient * (memory(2 * self.input.c, p.po),)
