"""Distribution of samples to workers, and measures of a model: accuracy, loss, and convergence (figure 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fanin.sim.learning.mlp import Floats, Samples
from fanin.sim.learning.workloads import Workload


@dataclass(frozen=True)
class Convergence:
    """Measures of RDMA-wild's figure 8.

    - ``distance``: Euclidean distance of w from the optimum w*.
    - ``gradient_norm``: Euclidean norm of the gradient.
    - ``loss_gap``: loss at w minus loss at w*.
    """

    distance: float
    gradient_norm: float
    loss_gap: float


@dataclass(frozen=True)
class Measures:
    """Measures of a model.

    - ``train_accuracy``, ``accuracy``: share of correctly classified training and held-out samples.
    - ``loss``: mean loss on training samples.
    - ``convergence``: None without an optimum w*.
    """

    train_accuracy: float
    accuracy: float
    loss: float
    convergence: Convergence | None = None


class Learner(Protocol):
    """Interface between a simulated run and the model that it trains: initial w, gradients, and measures of w.

    w are the model's parameters, one vector of float32.
    """

    @property
    def parameters(self) -> int:
        """Number of values of w."""

    @property
    def batches(self) -> int:
        """Mini-batches per worker and epoch."""

    def initial(self) -> Floats:
        """Return the initial w."""

    def gradient(self, worker: int, index: int, w: Floats) -> Floats:
        """Return the gradient at w of a worker's mini-batch ``index``, which counts through all epochs."""

    def measure(self, w: Floats) -> Measures | None:
        """Return measures of w; None if the run has no training data (:class:`NoTraining`)."""


class Shards:
    """Samples shuffled once by ``seed``, split evenly among workers, and cut into mini-batches of ``batch``.

    Each worker scans its shard in the same order in every epoch. Samples that do not fill a batch at every
    worker are left out. Raises ValueError if a worker has less than a batch.
    """

    def __init__(self, samples: Samples, *, workers: int, batch: int, seed: int):
        self._samples, self.batch = samples, batch
        order = np.random.default_rng(seed).permutation(len(samples))
        if not 1 <= workers <= len(order):
            raise ValueError(f"workers must be 1 to {len(order)}, the number of samples, not {workers!r}")
        self._shards = np.array_split(
            order, workers
        )  # indices of samples by worker; the last shard is smallest
        smallest = len(self._shards[-1])
        if not 1 <= batch <= smallest:
            share = f"a worker's share of {len(order)} samples"
            raise ValueError(f"batch must be 1 to {smallest}, {share}, not {batch!r}")
        #: Mini-batches per worker and epoch.
        self.batches = smallest // batch

    def __call__(self, worker: int, index: int) -> Samples:
        """Return a worker's mini-batch ``index``, which counts through all epochs."""
        start = index % self.batches * self.batch
        return self._samples[self._shards[worker][start : start + self.batch]]


class Training:
    """A workload that ``workers`` train with mini-batches of ``batch`` samples each.

    - ``workload``: network, loss, and training and test samples.
    - ``workers``, ``batch``, ``seed``: those of :class:`Shards`, which raises ValueError.
    - ``convergence``: measure the distance from the optimum w*, if it is unique: only a convex workload with
      weight decay has one optimum. Otherwise the attribute ``convergence`` is False, and measures have None.
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
        workload = self.workload
        train, test = workload.network.accuracy(w, workload.train), workload.network.accuracy(w, workload.test)
        loss = workload.loss(w, workload.train)
        if not self.convergence:
            return Measures(train, test, loss)
        w64 = w.astype(np.float64)
        convergence = Convergence(
            distance=float(np.linalg.norm(w64 - workload.optimum)),
            gradient_norm=float(np.linalg.norm(workload.gradient(w64, workload.train))),
            loss_gap=workload.loss(w64, workload.train) - workload.loss(workload.optimum, workload.train),
        )
        return Measures(train, test, loss, convergence)


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
