"""Distribution of samples to workers, and measures of a model: accuracy, and those of figure 8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fanin.sim.learning.mlp import Floats, Samples
from fanin.sim.learning.workloads import Workload


@dataclass(frozen=True)
class Convergence:
    """Figure 8's measures: distance of w from w*, the gradient's norm, and the loss above that of w*."""

    distance: float
    gradient_norm: float
    loss_gap: float


@dataclass(frozen=True)
class Measures:
    """Measures of a model: accuracy on training and held-out samples, loss on training samples, convergence.

    ``convergence`` is None without a w*.
    """

    train_accuracy: float
    accuracy: float
    loss: float
    convergence: Convergence | None = None


class Learner(Protocol):
    """Interface of a training for a run: the initial w, gradients, and measures of w."""

    @property
    def parameters(self) -> int:
        """Number of values of w."""

    @property
    def batches(self) -> int:
        """Mini-batches per worker and epoch."""

    def initial(self) -> Floats:
        """Return the initial w."""

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Return the gradient of a worker's mini-batch ``index``, which counts through all epochs."""

    def measure(self, w: Floats) -> Measures | None:
        """Return measures of w; None if nothing is learned."""


class Shards:
    """Samples shuffled once by ``seed``, split evenly among workers, and cut into mini-batches of ``batch``.

    Each worker scans its samples in the same order in every epoch; samples that do not fill a batch at every
    worker are left out. Raises ValueError if a worker has less than a batch.
    """

    def __init__(self, samples: Samples, *, workers: int, batch: int, seed: int):
        self._samples, self.batch = samples, batch
        order = np.random.default_rng(seed).permutation(len(samples))
        self._runs = np.array_split(order, workers)
        #: Mini-batches per worker and epoch.
        self.batches = len(self._runs[-1]) // batch if batch > 0 else 0
        if not self.batches:
            share = f"a worker's share of {len(order)} samples"
            raise ValueError(f"batch must be 1 to {len(self._runs[-1])}, {share}, not {batch!r}")

    def __call__(self, worker: int, index: int) -> Samples:
        """Return a worker's mini-batch ``index``, which counts through all epochs."""
        at = index % self.batches * self.batch
        return self._samples[self._runs[worker][at : at + self.batch]]


class Training:
    """A workload that ``workers`` train with mini-batches of ``batch`` samples each.

    :class:`Shards` distributes the samples, and raises ValueError. Without ``convergence``, w* is not computed.
    """

    def __init__(self, workload: Workload, *, workers: int, batch: int, seed: int, convergence: bool = True):
        self.workload, self.seed = workload, seed
        self.convergence = convergence and workload.convex and workload.decay > 0
        self._shards = Shards(workload.train, workers=workers, batch=batch, seed=seed)

    @property
    def parameters(self) -> int:
        """Number of values of w."""
        return self.workload.network.count

    @property
    def batches(self) -> int:
        """Mini-batches per worker and epoch."""
        return self._shards.batches

    def initial(self) -> Floats:
        """Return the initial w; if it is random, by ``seed``."""
        return self.workload.initial(self.seed)

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Return the gradient of a mini-batch, in the type of the samples."""
        samples = self._shards(worker, index)
        return self.workload.gradient(w.astype(samples.images.dtype), samples)

    def measure(self, w: Floats) -> Measures:
        """Return the measures on all training samples, also those left out of batches, and on test samples."""
        work = self.workload
        train, test = work.network.accuracy(w, work.train), work.network.accuracy(w, work.test)
        loss = work.loss(w, work.train)
        if not self.convergence:
            return Measures(train, test, loss)
        wide = w.astype(np.float64)
        found = Convergence(
            distance=float(np.linalg.norm(wide - work.optimum)),
            gradient_norm=float(np.linalg.norm(work.gradient(wide, work.train))),
            loss_gap=work.loss(wide, work.train) - work.loss(work.optimum, work.train),
        )
        return Measures(train, test, loss, found)


@dataclass(frozen=True)
class NoTraining:
    """Gradients of 0, for runs in which only time matters."""

    parameters: int
    batches: int

    def initial(self) -> Floats:
        """Return zeros."""
        return np.zeros(self.parameters, np.float32)

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(w)

    def measure(self, w: Floats) -> None:
        """Return None."""
