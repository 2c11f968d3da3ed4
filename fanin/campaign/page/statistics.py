"""Means and differences over repetitions, with 95 % confidence intervals by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """Mean of ``count`` values with its 95 % interval ``low`` to ``high``, None for a single value."""

    value: float
    count: int
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval; for a single value, the value twice."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of at least one value, under the assumption of independent, normal values."""
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    if len(found) < 2:
        return Mean(mean, len(found), None, None)
    error = float(found.std(ddof=1)) / math.sqrt(len(found))
    return _around(mean, len(found), error, len(found) - 1)


def welch(before: Sequence[float], after: Sequence[float]) -> Mean:
    """Return the mean of ``after`` minus ``before`` for unpaired samples of different variance (Welch)."""
    one, other = (np.asarray(each, dtype=np.float64) for each in (before, after))
    difference, count = float(other.mean() - one.mean()), min(len(one), len(other))
    if count < 2:
        return Mean(difference, count, None, None)
    parts = [float(each.var(ddof=1)) / len(each) for each in (one, other)]
    if not sum(parts):
        return Mean(difference, count, difference, difference)
    below = sum(part**2 / (len(each) - 1) for part, each in zip(parts, (one, other), strict=True))
    return _around(difference, count, math.sqrt(sum(parts)), sum(parts) ** 2 / below)


def _around(mean: float, count: int, error: float, degrees: float) -> Mean:
    from scipy.stats import t  # takes a second to load

    reach = float(t.ppf((1 + CONFIDENCE) / 2, degrees)) * error
    return Mean(mean, count, mean - reach, mean + reach)
