"""Golden trainers: exactly what the RTL computes, in integer NumPy (docs/reference/numbers.md).

For each sample, a worker computes a partial activation (PA), Σ feature · weight over its columns. The sum of
the workers' clamped PAs is the full activation (FA). The loss's derivative by FA, times γ/B (learning rate per
sample of a mini-batch), is the sample's scale. The gradient is Σ scale · feature over samples. Workers hold
columns in model-parallel mode, and samples in data-parallel mode.

Training starts from model 0, or continues a given one. It takes the samples in order, and uses γ/B for a short
last mini-batch, too.

Products of bits with shifted integers are summed by float64 matrix products, one block of columns at a time.
Every partial sum is an integer below 2^53, hence exact in any order. Blocks are then added in int64. A sum over
D columns stays below D · 2^31, so nothing overflows for D < 2^32. CSR samples give the same bits
(``fanin.glm.golden.sparse``); their time and memory depend on the non-zero entries only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from fanin import fixed
from fanin.fixed import NO_DECAY, Decay, Int64, LearningRate, Loss
from fanin.glm.facts import MICRO_BATCH, TrainShape
from fanin.glm.golden import sparse
from fanin.glm.golden.quantise import Samples, column_blocks


@dataclass(frozen=True)
class Epoch:
    """End of an epoch: the model in column order, and the number of values clamped during the epoch.

    ``clamps`` counts PAs (and, in data-parallel mode, gradients) of all workers outside the clamp's range.
    """

    model: npt.NDArray[np.int32]
    clamps: int


def forward(features: npt.NDArray[np.uint8], model: Int64, precision: int) -> Int64:
    """Return the exact PA of every sample: Σ_k Σ_j b_kj · (x_k >> j)."""
    pa: Int64 = np.zeros(len(features), dtype=np.int64)
    for columns in column_blocks(features.shape[1]):
        block, weights = features[:, columns], model[columns]
        for j in range(1, precision + 1):
            bits = (block >> (precision - j) & 1).astype(np.float64)
            pa += (bits @ (weights >> j).astype(np.float64)).astype(np.int64)
    return pa


def gradient(features: npt.NDArray[np.uint8], scale: Int64, precision: int) -> Int64:
    """Return the exact gradient of every column: g_k = Σ_samples Σ_j b_kj · (scale >> j)."""
    codes = np.arange(1 << precision)
    g: Int64 = np.zeros(features.shape[1], dtype=np.int64)
    for row, value in zip(features, scale, strict=True):
        g += np.take(fixed.bit_serial(codes, value, precision), row)  # all products of one scale
    return g


def train(
    features: Samples,
    labels: npt.NDArray[np.int32],
    shape: TrainShape,
    *,
    loss: Loss,
    rate: LearningRate,
    epochs: int,
    decay: Decay = NO_DECAY,
    model: npt.NDArray[np.int32] | None = None,
) -> Iterator[Epoch]:
    """Train in the mode of ``shape.node``; yield the end of every epoch.

    ``features``: quantised, (samples, columns), dense or CSR. ``labels``: as ``fixed.labels`` returns them.
    ``model``: weights to continue from; None: weights of 0.
    """
    if features.shape != (shape.samples, shape.columns) or labels.shape != (shape.samples,):
        raise ValueError(
            f"features must be {(shape.samples, shape.columns)} with as many labels, "
            f"not {features.shape} and {labels.shape}"
        )
    trainer = _DataParallel if shape.data_parallel else _ModelParallel
    run = trainer(shape, loss, rate, decay)
    if model is not None:
        run.model = model.astype(np.int64)
    for _ in range(epochs):
        run.clamps = 0
        for start in range(0, shape.samples, shape.batch):
            end = start + shape.batch
            run.mini_batch(features[start:end], labels[start:end])
        yield Epoch(run.model.astype(np.int32), run.clamps)


class _Trainer:
    """Model of a training and the steps that both modes share; ``clamps`` counts values that were clamped."""

    def __init__(self, shape: TrainShape, loss: Loss, rate: LearningRate, decay: Decay) -> None:
        self.shape, self.loss, self.rate, self.decay = shape, loss, rate, decay
        self.model: Int64 = np.zeros(shape.columns, dtype=np.int64)
        self.clamps = 0

    def clamp(self, values: Int64, bits: int) -> Int64:
        """Return the values clamped to [−2^``bits``, 2^``bits`` − 1]; count those that change."""
        clamped = fixed.clamp(values, bits)
        self.clamps += int(np.count_nonzero(clamped != values))
        return clamped

    def scale(self, fa: Int64, labels: npt.NDArray[np.int32]) -> Int64:
        """Return the factor of each sample's features in the gradient: the loss's derivative times γ/B."""
        return fixed.scale(fixed.df(fa, labels, self.loss, self.shape.node.frac), *self.rate)

    def decay_model(self) -> None:
        """Subtract the mini-batch's decay from each weight; no weight's magnitude grows."""
        if not self.decay.shift:
            return
        decrease = fixed.decay(self.model, self.decay.shift)
        if self.decay.spared is not None:
            decrease[self.decay.spared] = 0
        self.model -= decrease

    def activations(self, features: Samples, share: int) -> Int64:
        """Return the exact PA of every sample over each slice of ``share`` columns: [slice, sample]."""
        precision = self.shape.precision
        if issparse(features):
            return sparse.forward(features, self.model, precision, share=share)
        slices = [slice(start, start + share) for start in range(0, self.shape.columns, share)]
        return np.stack([forward(features[:, part], self.model[part], precision) for part in slices])

    def gradient(self, features: Samples, scale: Int64) -> tuple[slice | npt.NDArray[np.int64], Int64]:
        """Return the columns that the samples can change, and the exact gradient of each."""
        if issparse(features):
            return sparse.gradient(features, scale, self.shape.precision)
        return slice(None), gradient(features, scale, self.shape.precision)


class _ModelParallel(_Trainer):
    """Workers hold columns; FAs are summed over them; the model changes once per micro-batch."""

    def mini_batch(self, features: Samples, labels: npt.NDArray[np.int32]) -> None:
        pa = self.activations(features, self.shape.columns_per_worker)
        scale = self.scale(self.clamp(pa, fixed.clamp_bits(self.shape.workers)).sum(axis=0), labels)
        self.decay_model()  # the RTL applies it together with the first micro-batch's gradient
        for start in range(0, len(labels), MICRO_BATCH):
            micro_batch = slice(start, start + MICRO_BATCH)
            columns, g = self.gradient(features[micro_batch], scale[micro_batch])
            self.model[columns] = fixed.saturate32(self.model[columns] - g)


class _DataParallel(_Trainer):
    """Workers hold samples; gradients are summed over them; the model changes once per mini-batch."""

    def mini_batch(self, features: Samples, labels: npt.NDArray[np.int32]) -> None:
        shape = self.shape
        total: Int64 = np.zeros(shape.columns, dtype=np.int64)
        for start in range(0, len(labels), shape.batch_per_worker):
            worker_samples = slice(start, start + shape.batch_per_worker)
            (pa,) = self.activations(features[worker_samples], shape.columns)
            fa = self.clamp(pa, fixed.clamp_bits(1))  # a worker has all columns: its PA is the FA
            columns, g = self.gradient(features[worker_samples], self.scale(fa, labels[worker_samples]))
            total[columns] += self.clamp(g, fixed.clamp_bits(shape.workers))
        self.decay_model()
        self.model = fixed.saturate32(self.model - total)
