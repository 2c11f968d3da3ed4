"""Means and differences over repetitions, with 95 % confidence intervals by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """Mean of ``count`` values. ``low`` and ``high``: its 95 % confidence interval, None for a single value."""

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
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Mean(mean, len(array), None, None)
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    return _mean_with_interval(mean, len(array), error, len(array) - 1)


def welch(before: Sequence[float], after: Sequence[float]) -> Mean:
    """Return the mean of ``after`` minus ``before`` for unpaired samples of different variance (Welch)."""
    before_array, after_array = (np.asarray(array, dtype=np.float64) for array in (before, after))
    difference = float(after_array.mean() - before_array.mean())
    count = min(len(before_array), len(after_array))
    if count < 2:
        return Mean(difference, count, None, None)
    variances = [float(array.var(ddof=1)) / len(array) for array in (before_array, after_array)]  # of the means
    if not sum(variances):
        return Mean(difference, count, difference, difference)
    before_variance, after_variance = variances
    denominator = before_variance**2 / (len(before_array) - 1) + after_variance**2 / (len(after_array) - 1)
    return _mean_with_interval(difference, count, math.sqrt(sum(variances)), sum(variances) ** 2 / denominator)


def _mean_with_interval(mean: float, count: int, error: float, degrees: float) -> Mean:
    """Return a mean with its interval, from its standard error and the degrees of freedom of Student's t."""
    from scipy.stats import t  # takes a second to load

    margin = float(t.ppf((1 + CONFIDENCE) / 2, degrees)) * error
    return Mean(mean, count, mean - margin, mean + margin)
