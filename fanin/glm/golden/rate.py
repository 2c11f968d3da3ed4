"""Default learning rate of a GLM, from the curvature of its loss on the quantised training samples."""

from __future__ import annotations

import math

import numpy as np

from fanin.fixed import Loss, unknown_loss
from fanin.glm.golden.quantise import Float64, Samples

_LEAST_SQUARE = 2.0**-8  # of samples without any feature, so that the rate is finite


def default_rate(features: Samples, precision: int, loss: Loss) -> float:
    """Return γ: the power of two nearest, by ratio, to 1 over a bound of the mean loss's curvature.

    The bound is the mean squared length of a sample (logistic: a quarter of it). A power of two has no rounding
    in the nodes, and makes a λ that is a power of two exact. ``features``: codes of the training samples.
    """
    square = float(np.mean(_squares(features))) / 4**precision
    return 2.0 ** round(math.log2(_factor(loss) / max(square, _LEAST_SQUARE)))


def _factor(loss: Loss) -> float:
    """Return 1 over the largest second derivative of the loss by its sum; 1 for hinge, which has none."""
    match loss:
        case Loss.LINEAR | Loss.HINGE:
            return 1.0
        case Loss.LOGISTIC:
            return 4.0
        case _:
            raise unknown_loss(loss)


def _squares(features: Samples) -> Float64:
    """Return the exact sum of the squared codes of each sample."""
    if isinstance(features, np.ndarray):
        return np.einsum("ij,ij->i", features, features, dtype=np.float64)
    sums: Float64 = np.asarray(features.astype(np.float64).power(2).sum(axis=1)).ravel()
    return sums
