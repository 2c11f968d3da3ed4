"""GLM training in float64, the reference for the cost of the fixed-point formats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.fixed import NO_DECAY, Decay, Loss, unknown_loss
from fanin.glm.golden.quantise import Float64, Samples


def derivative(fa: Float64, labels: Float64, loss: Loss) -> Float64:
    """Return df of each sample; ``labels`` are the targets (linear) or the classes 0 and 1."""
    match loss:
        case Loss.LINEAR:
            return fa - labels
        case Loss.LOGISTIC:
            return 0.5 * (1 + np.tanh(fa / 2)) - labels  # σ without overflow
        case Loss.HINGE:
            y = 2 * labels - 1
            return np.where(y * fa < 1, -y, 0.0)
        case _:
            raise unknown_loss(loss)


def train_float64(
    features: Samples,
    labels: Float64,
    *,
    loss: Loss,
    precision: int,
    batch: int,
    rate: float,
    epochs: int,
    decay: Decay = NO_DECAY,
    model: Float64 | None = None,
) -> Iterator[Float64]:
    """Train by mini-batch SGD in float64; yield the model after every epoch. ``rate`` is γ/B.

    ``model``: the model to continue; None: weights of 0.

    Samples and their order are those of the fixed-point training: ``features``, dense or CSR, are quantised
    integers and are multiplied by 2^-``precision``. Weights decay by 2^-shift in each mini-batch. Without
    decay, the time of CSR samples depends on the non-zeros only.
    """
    samples, columns = features.shape
    model = np.zeros(columns) if model is None else model.copy()
    kept_share = np.full(columns, 1 - 2.0**-decay.shift if decay.shift else 1.0)
    if decay.spared is not None:
        kept_share[decay.spared] = 1.0
    for _ in range(epochs):
        for start in range(0, samples, batch):
            a = features[start : start + batch] / (1 << precision)
            df = derivative(a @ model, labels[start : start + batch], loss)
            if decay.shift or isinstance(a, np.ndarray):
                model = kept_share * model - rate * (df @ a)
            else:
                columns, place = np.unique(a.indices, return_inverse=True)
                terms = a.data * np.repeat(df, np.diff(a.indptr))
                model[columns] -= rate * np.bincount(place, weights=terms)
        yield model.copy()
