"""Loss and accuracy of a model on quantised samples, in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from fanin.fixed import Loss, unknown_loss
from fanin.golden.glm.quantise import Float64, Samples, column_blocks


class Score(NamedTuple):
    """Mean loss, and the share of samples whose class is predicted."""

    loss: float
    accuracy: float


def activations(features: Samples, model: npt.NDArray[np.int32], *, precision: int, frac: int) -> Float64:
    """FA = (Σ_k q_k · x_k) / 2^(s + frac): the sum is exact, so its order does not matter."""
    if issparse(features):
        fa = features.astype(np.int64) @ model.astype(np.int64)
        return np.ldexp(fa.astype(np.float64), -precision - frac)
    fa = np.zeros(len(features), dtype=np.int64)
    for columns in column_blocks(features.shape[1]):
        fa += (features[:, columns].astype(np.float64) @ model[columns].astype(np.float64)).astype(np.int64)
    return np.ldexp(fa.astype(np.float64), -precision - frac)


def activations_float64(features: Samples, model: Float64, *, precision: int) -> Float64:
    """FA of a float64 model."""
    if issparse(features):
        return np.ldexp(features.astype(np.float64) @ model, -precision)
    fa = np.zeros(len(features))
    for columns in column_blocks(features.shape[1]):
        fa += features[:, columns].astype(np.float64) @ model[columns]
    return np.ldexp(fa, -precision)


def score(fa: Float64, labels: Float64, loss: Loss) -> Score:
    """Loss and accuracy; ``labels`` are the targets (linear) or the classes 0 and 1.

    linear: mean ½(FA − y)². logistic: mean cross-entropy. hinge: mean max(0, 1 − y·FA), y = ±1.
    """
    match loss:
        case Loss.LINEAR:
            losses = (fa - labels) ** 2 / 2
        case Loss.LOGISTIC:
            losses = np.logaddexp(0, fa) - labels * fa
        case Loss.HINGE:
            losses = np.maximum(0, 1 - (2 * labels - 1) * fa)
        case _:
            raise unknown_loss(loss)
    return Score(float(np.mean(losses)), float(np.mean(is_larger_class(fa, loss) == (labels >= 0.5))))


def is_larger_class(fa: Float64, loss: Loss) -> npt.NDArray[np.bool_]:
    """Which samples are predicted to be of the larger class: those of FA >= 0, where σ(FA) >= ½.

    linear: those of FA >= ½, as a target of at least ½ is.
    """
    return fa >= (0.5 if loss is Loss.LINEAR else 0.0)
