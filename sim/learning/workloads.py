"""Workloads of RDMA-wild (section 5): softmax regression, the same on random features, and a small network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import optimize

from fanin.base.errors import InputError
from fanin.param_server.facts import MODELS
from fanin.sim.learning.mlp import Float64, Floats, Mlp, Samples, Vector, classes_of, load_digits
from fanin.sim.learning.mnist import load_mnist
from fanin.sim.learning.npz import load_npz

BUNDLED = "digits"  # name of scikit-learn's digits, as in fanin train
HIDDEN = 128
PAPER_FEATURES = 10_000
ARCHIVE = ".npz"
GAMMA = 0.2  # of the Gaussian kernel, for the digits' 64 pixels from 0 to 1


def source_of(data: str) -> Path | None:
    """Return the folder or archive named by ``data``; None for the bundled set. Raises InputError."""
    if data == BUNDLED:
        return None
    path = Path(data)
    if not path.is_dir() and path.suffix != ARCHIVE:
        kinds = f"no folder with MNIST's four idx files, no {ARCHIVE}"
        raise InputError(f"{data}: {kinds}; the bundled set is {BUNDLED}")
    return path


def load(source: Path | None, seed: int) -> tuple[Samples, Samples]:
    """Return training and held-out samples: MNIST from a folder, an archive, or scikit-learn's digits.

    Raises InputError of one line that names the file and its fault.
    """
    if source is None:
        return load_digits(seed)
    return load_npz(source) if source.suffix == ARCHIVE else load_mnist(source)


@dataclass(frozen=True)
class RandomFeatures:
    """Cosine features whose inner products approximate the Gaussian kernel exp(-gamma · |x - y|²).

    √(2/count) · cos(x·F + b), F normal with variance 2 · gamma, b uniform. Source: Rahimi and Recht, 2007.
    """

    inputs: int
    count: int
    gamma: float
    seed: int

    def __call__(self, images: Floats) -> Float64:
        """Return the features, one row per sample."""
        rng = np.random.default_rng(self.seed)
        frequencies = rng.standard_normal((self.inputs, self.count)) * np.sqrt(2 * self.gamma)
        phases = rng.uniform(0, 2 * np.pi, self.count)
        return np.sqrt(2 / self.count) * np.cos(images.astype(np.float64) @ frequencies + phases)


@dataclass(frozen=True)
class Workload:
    """A model with its data: ``network`` on features, ``decay`` / 2 · |w|² added to the loss.

    Results have the type of the samples. Convex models start at 0.
    """

    network: Mlp
    train: Samples
    test: Samples
    decay: float

    @property
    def convex(self) -> bool:
        """Whether the loss has only one optimum."""
        return len(self.network.widths) == 2

    def initial(self, seed: int) -> Floats:
        """Return the initial w: 0, or Kaiming's initialisation."""
        kind = self.train.images.dtype
        return np.zeros(self.network.count, kind) if self.convex else self.network.initial(seed).astype(kind)

    def gradient(self, w: Vector, samples: Samples) -> Vector:
        """Return the gradient of the samples' mean loss, with decay."""
        gradient = self.network.gradient(w, samples)
        gradient += self.decay * w
        return gradient

    def loss(self, w: Floats, samples: Samples) -> float:
        """Return the mean cross-entropy of the samples, with decay."""
        return self.network.loss(w, samples) + self.decay / 2 * float(w @ w)

    @cached_property
    def optimum(self) -> Float64:
        """w* of the training samples, by L-BFGS. Raises ValueError if the optimum is not unique."""
        if not self.convex or not self.decay:
            raise ValueError("only a convex loss with decay has one optimum")
        minimum = optimize.minimize(
            lambda w: (self.loss(w, self.train), self.gradient(w, self.train)),
            np.zeros(self.network.count),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 0, "gtol": 1e-9},
        )
        return np.asarray(minimum.x, np.float64)


def build(
    model: str,
    data: tuple[Samples, Samples],
    *,
    decay: float = 0.0,
    features: int = PAPER_FEATURES,
    gamma: float = GAMMA,
    dtype: npt.DTypeLike = np.float64,
    seed: int = 0,
) -> Workload:
    """Return one of ``MODELS`` on training and test data; ``features``, ``gamma`` and ``seed`` are for lr-rff.

    Raises ValueError for another name, less than one feature, or a type that is not float32 or float64.
    """
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if features < 1:
        raise ValueError(f"features must be at least 1, not {features!r}")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, not {np.dtype(dtype)}")
    train, test = data
    if model == "lr-rff":
        transform = RandomFeatures(train.images.shape[1], features, gamma, seed)
        train, test = (Samples(transform(part.images), part.digits) for part in (train, test))
    train, test = (Samples(part.images.astype(dtype), part.digits) for part in (train, test))
    inputs, classes = train.images.shape[1], classes_of(train, test)
    widths = (inputs, HIDDEN, classes) if model == "fcnn" else (inputs, classes)
    return Workload(Mlp(widths), train, test, decay)
