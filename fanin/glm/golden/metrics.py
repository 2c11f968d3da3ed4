"""Loss and fit of a model on quantised samples, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from fanin.fixed import Loss, unknown_loss
from fanin.glm.golden.csr import row_parts
from fanin.glm.golden.quantise import Float64, Samples, column_blocks


class Score(NamedTuple):
    """Mean loss, and the fit of the predictions: the ``measure_of`` that loss."""

    loss: float
    fit: float


@dataclass(frozen=True)
class Measure:
    """Kind of fit: ``name`` for people, ``key`` in JSON."""

    name: str
    key: str

    def text(self, fit: float | None) -> str:
        """Format a fit for people."""
        if fit is None:
            return "none held out"
        return f"{fit:.4f}" if self is R2 else f"{100 * fit:.1f} %"

    def loss_text(self, loss: float, digits: int = 4) -> str:
        """Format a loss for people. A loss of targets is in their squared units, so its size varies."""
        return f"{loss:.{digits}g}" if self is R2 else f"{loss:.{digits}f}"


ACCURACY = Measure("accuracy", "accuracy")  #: share of samples whose class is predicted
R2 = Measure("R²", "r2")  #: 1 − Σ(y − prediction)² / Σ(y − mean of y)²


def measure_of(loss: Loss) -> Measure:
    """Return the measure of fit for a loss: R² for targets, accuracy for classes."""
    return ACCURACY if loss.classifies else R2


def activations(features: Samples, model: npt.NDArray[np.int32], *, precision: int, frac: int) -> Float64:
    """Return FA = (Σ_k q_k · x_k) / 2^(s + frac). The sum is exact, so its order does not matter."""
    if issparse(features):
        weights = model.astype(np.int64)
        sums = np.concatenate([part.astype(np.int64) @ weights for part in row_parts(features)])
        return np.ldexp(sums.astype(np.float64), -precision - frac)
    fa = np.zeros(len(features), dtype=np.int64)
    for columns in column_blocks(features.shape[1]):
        fa += (features[:, columns].astype(np.float64) @ model[columns].astype(np.float64)).astype(np.int64)
    return np.ldexp(fa.astype(np.float64), -precision - frac)


def activations_float64(features: Samples, model: Float64, *, precision: int) -> Float64:
    """Return the FAs of a float64 model."""
    if issparse(features):
        sums = np.concatenate([part.astype(np.float64) @ model for part in row_parts(features)])
        return np.ldexp(sums, -precision)
    fa = np.zeros(len(features))
    for columns in column_blocks(features.shape[1]):
        fa += features[:, columns].astype(np.float64) @ model[columns]
    return np.ldexp(fa, -precision)


def score(fa: Float64, labels: Float64, loss: Loss) -> Score:
    """Return loss and fit; ``labels`` are the targets (linear) or the classes 0 and 1.

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
    fit = float(np.mean(is_larger_class(fa) == (labels >= 0.5))) if loss.classifies else r_squared(fa, labels)
    return Score(float(np.mean(losses)), fit)


def is_larger_class(fa: Float64) -> npt.NDArray[np.bool_]:
    """Return a mask of the samples predicted as the larger class: FA >= 0, that is, σ(FA) >= ½."""
    return fa >= 0


def rms_error(predictions: Float64, targets: Float64) -> float:
    """Return the square root of the mean squared error, in the targets' unit."""
    return float(np.sqrt(np.mean((predictions - targets) ** 2)))


def r_squared(predictions: Float64, targets: Float64) -> float:
    """Return R²: 1 for exact predictions, 0 for predictions no better than the mean.

    If all targets are equal, the result is 1 for exact predictions and 0 for all others.
    """
    error, variation = np.sum((targets - predictions) ** 2), np.sum((targets - np.mean(targets)) ** 2)
    if variation:
        return float(1 - error / variation)
    return 0.0 if error else 1.0
