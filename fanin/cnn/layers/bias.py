"""A trained word per channel is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import REUSE, Layer, Parallelism, ceil_div


@dataclass(frozen=True, kw_only=True)
class Bias(Layer):
    """Adds a trained word per channel."""

    kind: ClassVar[str] = "bias"

    @property
    def parameters(self) -> int:
        """One per channel."""
        return self.input.c

    def compute_cycles(self, p: Parallelism) -> int:
        """h·w·max(c/po, 8): on the way back every position adds to each channel's velocity."""
        return self.input.h * self.input.w * max(ceil_div(self.input.c, p.po), REUSE)
