"""Scale targets to numbers that nodes can hold, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Float64


@dataclass(frozen=True)
class TargetScale:
    """Linear scale: target = ``offset`` + ``scale`` · sum, where a model's sum is Σ features · weights."""

    offset: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, targets: Float64) -> Self:
        """Return the scale with the targets' mean and the power of two that brings them into [−1, 1].

        Raises InputError for targets that span more than float64 holds.
        """
        try:
            offset = math.fsum(targets) / len(targets)  # the same for any order
        except OverflowError:
            offset = math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            largest = float(np.max(np.abs(targets - offset)))
        if not largest <= 2.0**1023:
            raise InputError(f"targets span {min(targets):g} to {max(targets):g}, more than float64 holds")
        return cls(offset, float(2.0 ** np.ceil(np.log2(largest))) if largest else 1.0)

    def to_sums(self, targets: Float64) -> Float64:
        """Convert targets to sums."""
        return (targets - self.offset) / self.scale

    def to_targets(self, sums: Float64) -> Float64:
        """Convert sums to targets."""
        return self.offset + self.scale * sums


UNSCALED = TargetScale()  #: identity, for classes
