"""Who of the workers trains on what, and how far a model is: accuracy, and figure 8's measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fanin.sim.learning.mlp import Floats, Samples
from fanin.sim.learning.workloads import Workload


@dataclass(frozen=True)
class Convergence:
    """Figure 8's: how far w is from w*, the gradient's norm, and the loss above w*'s."""

    distance: float
    gradient_norm: float
    loss_gap: float


@dataclass(frozen=True)
class Measures:
    """Of a model: shares of samples that it recognises, the loss on those to train on, and where there is a w*,
    how near that is."""

    train_accuracy: float
    accuracy: float
    loss: float
    convergence: Convergence | None = None


class Learner(Protocol):
    """What a run asks of a training: the first w, gradients, and how good w is."""

    @property
    def parameters(self) -> int:
        """Values of w."""

    @property
    def batches(self) -> int:
        """Mini-batches of a worker and epoch."""

    def initial(self) -> Floats:
        """The first w."""

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Of a worker's mini-batch ``index``, counted on over the epochs."""

    def measure(self, w: Floats) -> Measures | None:
        """How good w is; None where nothing is learnt."""


class Shards:
    """The samples, shuffled once by ``seed``, as a run for each worker, cut into mini-batches of ``batch``.

    Each worker scans its own from left to right in every epoch; what does not fill a batch everywhere is left
    out. Raises ValueError where a worker has less than a batch.
    """

    def __init__(self, samples: Samples, *, workers: int, batch: int, seed: int):
        self._samples, self.batch = samples, batch
        order = np.random.default_rng(seed).permutation(len(samples))
        self._runs = np.array_split(order, workers)
        #: Mini-batches of a worker and epoch.
        self.batches = len(self._runs[-1]) // batch if batch > 0 else 0
        if not self.batches:
            share = f"a worker's share of {len(order)} samples"
            raise ValueError(f"batch must be 1 to {len(self._runs[-1])}, {share}, not {batch!r}")

    def __call__(self, worker: int, index: int) -> Samples:
        """A worker's mini-batch ``index``, counted on over the epochs."""
        at = index % self.batches * self.batch
        return self._samples[self._runs[worker][at : at + self.batch]]


class Training:
    """A workload that ``workers`` train with mini-batches of ``batch`` samples each.

    Who has which samples, and ValueErrors, are those of :class:`Shards`. Without ``convergence``, w* is not
    looked for.
    """

    def __init__(self, workload: Workload, *, workers: int, batch: int, seed: int, convergence: bool = True):
        self.workload, self.seed = workload, seed
        self.convergence = convergence and workload.convex and workload.decay > 0
        self._shards = Shards(workload.train, workers=workers, batch=batch, seed=seed)

    @property
    def parameters(self) -> int:
        """Values of w."""
        return self.workload.network.count

    @property
    def batches(self) -> int:
        """Mini-batches of a worker and epoch."""
        return self._shards.batches

    def initial(self) -> Floats:
        """The first w, by ``seed`` where it is random."""
        return self.workload.initial(self.seed)

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """In the type of the samples, whatever w's."""
        samples = self._shards(worker, index)
        return self.workload.gradient(w.astype(samples.images.dtype), samples)

    def measure(self, w: Floats) -> Measures:
        """Of all samples to train on, those left out of the batches among them."""
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
    """Gradients of 0, for runs of which only the time is asked."""

    parameters: int
    batches: int

    def initial(self) -> Floats:
        """Zeros."""
        return np.zeros(self.parameters, np.float32)

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Zeros."""
        return np.zeros_like(w)

    def measure(self, w: Floats) -> None:
        """Nothing."""
