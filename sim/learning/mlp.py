"""Networks with flat gradients in NumPy; INCEPTIONN's handwritten digit classifier (section VII-A, table I).

The same seed gives the same bits on one machine. Matrix products are the BLAS library's, whose last bits differ
between processors and with the number of its threads. Commands use one thread; other programs can set
``OPENBLAS_NUM_THREADS=1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn import datasets
from sklearn.model_selection import train_test_split

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Vector = TypeVar("Vector", Float32, Float64)
Int64 = npt.NDArray[np.int64]

HIDDEN = 500
PIXELS, CLASSES = 64, 10
TEST = 0.25  # share of the samples that are held out
BRIGHTEST = 16  # maximum pixel of scikit-learn's digits


@dataclass(frozen=True)
class Samples:
    """Labelled samples.

    - ``images``: images with values from 0 to 1, or features; one sample per index of the first axis.
    - ``digits``: the samples' labels.
    """

    images: Floats
    digits: Int64

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, indices: slice | Int64) -> Samples:
        return Samples(self.images[indices], self.digits[indices])

    @property
    def flat(self) -> Samples:
        """The same samples with one row per image."""
        return Samples(self.images.reshape(len(self), -1), self.digits)


def classes_of(*parts: Samples) -> int:
    """Return the number of classes of labelled samples: one more than the greatest label."""
    return 1 + max(int(part.digits.max()) for part in parts)


def load_digits(seed: int) -> tuple[Samples, Samples]:
    """Return scikit-learn's 1,797 digits: training samples, and a stratified quarter for tests."""
    images, digits = datasets.load_digits(return_X_y=True)
    parts = train_test_split(
        (images / BRIGHTEST).astype(np.float32),
        digits.astype(np.int64),
        test_size=TEST,
        stratify=digits,
        random_state=seed,
    )
    return Samples(parts[0], parts[2]), Samples(parts[1], parts[3])


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers of ``widths``, with ReLU between them and softmax cross-entropy at the end.

    Parameters and gradients are one vector each: for every layer its matrix, row by row, then its biases.
    Results have the wider type of parameters and images. A single layer is softmax regression.
    """

    widths: tuple[int, ...] = (PIXELS, HIDDEN, HIDDEN, HIDDEN, HIDDEN, CLASSES)

    @property
    def count(self) -> int:
        """Number of values of the vector."""
        return sum((rows + 1) * columns for rows, columns in self._shapes())

    def _shapes(self) -> list[tuple[int, int]]:
        return list(zip(self.widths, self.widths[1:], strict=False))

    def initial(self, seed: int) -> Float32:
        """Return normally distributed weights of variance 2/inputs (He), and biases of 0."""
        rng = np.random.default_rng(seed)
        vector = np.zeros(self.count, dtype=np.float32)
        for (rows, columns), (weights, _) in zip(self._shapes(), self._layers(vector), strict=True):
            weights[:] = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32((2 / rows) ** 0.5)
        return vector

    def _layers(self, vector: Vector) -> list[tuple[Vector, Vector]]:
        """Return views of the matrices and biases in a vector."""
        layers: list[tuple[Vector, Vector]] = []
        start = 0
        for rows, columns in self._shapes():
            biases_start, end = start + rows * columns, start + (rows + 1) * columns
            layers.append((vector[start:biases_start].reshape(rows, columns), vector[biases_start:end]))
            start = end
        return layers

    def _activations(self, vector: Floats, images: Floats) -> list[Floats]:
        """Return the images, each hidden layer's output, and the scores of the classes."""
        layers = self._layers(vector)
        activations = [images]
        for weights, biases in layers[:-1]:
            activations.append(np.maximum(activations[-1] @ weights + biases, 0))
        weights, biases = layers[-1]
        return [*activations, activations[-1] @ weights + biases]

    def gradient(self, vector: Vector, samples: Samples) -> Vector:
        """Return the gradient of the samples' mean loss, at the parameters ``vector``."""
        *inputs, scores = self._activations(vector, samples.images)
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        delta = exponentials / exponentials.sum(axis=1, keepdims=True)
        delta[np.arange(len(samples)), samples.digits] -= 1
        delta /= len(samples)
        gradient = np.empty_like(vector)
        layers, layer_gradients = self._layers(vector), self._layers(gradient)
        for layer in reversed(range(len(layers))):
            layer_gradients[layer][0][:] = inputs[layer].T @ delta
            layer_gradients[layer][1][:] = delta.sum(axis=0)
            if layer:
                delta = (delta @ layers[layer][0].T) * (inputs[layer] > 0)
        return gradient

    def loss(self, vector: Floats, samples: Samples) -> float:
        """Return the mean cross-entropy of the samples."""
        scores = self._activations(vector, samples.images)[-1]
        top = scores.max(axis=1)
        total = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
        return float((total - scores[np.arange(len(samples)), samples.digits]).mean())

    def accuracy(self, vector: Floats, samples: Samples) -> float:
        """Return the share of correctly classified samples."""
        predictions = self._activations(vector, samples.images)[-1].argmax(axis=1)
        return float((predictions == samples.digits).mean())


@dataclass(frozen=True)
class Descent:
    """Gradient descent with the hyperparameters of HDC in INCEPTIONN's table I.

    - ``rate``: initial learning rate.
    - ``reduction``: divisor of the rate at each reduction.
    - ``reductions``: number of reductions, evenly spread over the training.
    - ``momentum``, ``decay``: factors of momentum and of weight decay.
    """

    rate: float = 0.1
    reduction: float = 5.0
    reductions: int = 4  # in 10,000 iterations, one every 2,000
    momentum: float = 0.9
    decay: float = 0.00005

    def rate_at(self, done: float) -> float:
        """Return the learning rate after the share ``done`` of the training, 0 to 1."""
        return self.rate / self.reduction ** int(done * (self.reductions + 1))

    def step(self, vector: Float32, velocity: Float32, gradient: Float32, done: float) -> None:
        """Update parameters and velocity in place, in float32."""
        velocity *= np.float32(self.momentum)
        velocity -= np.float32(self.rate_at(done)) * (gradient + np.float32(self.decay) * vector)
        vector += velocity
