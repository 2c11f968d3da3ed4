"""Weights of samples as numbers of uses, since the nodes have no weights of samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.glm.golden.quantise import Float64

MOST_USES = 10  # of a sample, on average, with whole numbers as weights


def uses(weights: Float64) -> npt.NDArray[np.int64]:
    """Return how often each sample is used: its weight if all are whole numbers.

    Else as many samples as there are are drawn, at equal steps of the sum of weights. ``weights``: not all 0.
    """
    total = weights.sum()
    if total <= MOST_USES * len(weights) and np.array_equal(weights, np.floor(weights)):
        return weights.astype(np.int64)
    edges = np.floor(np.cumsum(weights) * (len(weights) / total) + 0.5).astype(np.int64)
    edges[-1] = len(weights)
    return np.diff(edges, prepend=0)
