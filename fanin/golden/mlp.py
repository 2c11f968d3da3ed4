"""Multi-layer perceptron with a defined order of every sum, so that every machine computes the same bits.

Everything except ``exp`` is computed in the type of the parameters: binary32, or binary64 for comparison.
``exp`` computes in binary64 and converts its result. Each product and each sum is rounded separately, without
fused operations. BLAS guarantees neither the order nor this rounding, so ``product`` does not call it.

*Parameters* are a layer's weights and biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Int64 = npt.NDArray[np.int64]

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # 0x3fe62e42_fee00000 and the rest
_LOG2_E = 1.4426950408889634
_TERMS = 12  # of e^r's series: |r| <= ln 2 / 2, so the truncation error is below 2^-51
_MIN_EXPONENT = -700.0  # e^-700 is a normal binary64, and 0 as binary32


def product(a: Floats, b: Floats) -> Floats:
    """Return the matrix product of (rows, n) and (n, columns), n >= 1.

    Terms are added from left to right, one rounded addition each: a[i, 0]·b[0, j], then a[i, 1]·b[1, j], ….
    """
    total = a[:, :1] * b[:1]
    term = np.empty_like(total)
    for k in range(1, a.shape[1]):
        np.multiply(a[:, k : k + 1], b[k : k + 1], out=term)
        total += term
    return total


def exp(x: Floats) -> Floats:
    """Return e^x for x <= 0, to less than an ulp of binary32, by binary64 operations in a defined order.

    C libraries differ in an exponential's last bit. This function computes n = round(x·log2 e), r = x − n·ln 2
    in two parts, the series of e^r by Horner's scheme, and 2^n.
    """
    x64 = np.maximum(x.astype(np.float64), _MIN_EXPONENT)
    n = np.rint(x64 * _LOG2_E)
    r = (x64 - n * _LN2_HIGH) - n * _LN2_LOW
    total = np.ones_like(r)
    for k in range(_TERMS, 0, -1):
        total = total * r / k + 1.0
    # n <= 0. A NaN has no integer: its exponent is 0, and the series is already NaN.
    exponent = np.where(n < 0, n, 0).astype(np.int32)
    return np.ldexp(total, exponent).astype(x.dtype)


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers of these ``widths``: ReLU between them, softmax cross-entropy after the last.

    Layer l has a matrix of (widths[l] + 1) × widths[l + 1] values, row by row; its last row holds the biases.
    Values of a layer, parameters or gradient, are one flat vector. Layers count from 0, at the input. Raises
    ValueError for less than two widths, and for a width below 1.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"layers must be at least 2 widths of at least 1, not {list(self.widths)}")

    @property
    def layers(self) -> int:
        """Number of layers, that is, of matrices."""
        return len(self.widths) - 1

    def shape(self, layer: int) -> tuple[int, int]:
        """Return rows and columns of a layer's matrix, including the biases' row."""
        return self.widths[layer] + 1, self.widths[layer + 1]

    def count(self, layer: int) -> int:
        """Return the number of values of a layer."""
        rows, columns = self.shape(layer)
        return rows * columns

    @property
    def counts(self) -> list[int]:
        """Number of values of each layer."""
        return [self.count(layer) for layer in range(self.layers)]

    def initial(self, seed: int) -> list[Floats]:
        """Return initial binary32 parameters of each layer.

        Weights are normal with variance 2 / inputs (He), biases 0.
        """
        rng = np.random.default_rng(seed)
        parameters: list[Floats] = []
        for layer in range(self.layers):
            matrix = np.zeros(self.shape(layer), np.float32)
            scale = np.float32((2 / self.widths[layer]) ** 0.5)
            matrix[:-1] = rng.standard_normal(matrix[:-1].shape, dtype=np.float32) * scale
            parameters.append(matrix.reshape(-1))
        return parameters

    def matrix(self, layer: int, values: Floats) -> Floats:
        """Return a layer's vector as its matrix, a view."""
        return values.reshape(self.shape(layer))

    def forward(self, parameters: Sequence[Floats], images: Floats) -> list[Floats]:
        """Return the inputs of each layer, then the scores of the last; each is (samples, width)."""
        values = [images.astype(parameters[0].dtype)]
        for layer in range(self.layers):
            scores = product(_with_one(values[-1]), self.matrix(layer, parameters[layer]))
            if layer < self.layers - 1:
                scores = np.where(scores <= 0, scores.dtype.type(0), scores)  # a NaN stays NaN
            values.append(scores)
        return values

    def output_error(self, scores: Floats, labels: Int64) -> Floats:
        """Return the mean cross-entropy's derivative by the scores: (softmax − one-hot) / samples.

        - ``scores``: (samples, classes).
        - ``labels``: class of each sample.

        A class's softmax is e^(score − greatest score of the sample), divided by the sum of these powers over
        the classes, which is added from class 0 on. The greatest score is subtracted because ``exp`` takes x <=
        0.
        """
        powers = exp(scores - scores.max(axis=1, keepdims=True))
        ones_column = np.ones((scores.shape[1], 1), scores.dtype)
        error = powers / product(powers, ones_column)
        error[np.arange(len(labels)), labels] -= 1
        return error / scores.dtype.type(len(labels))

    def backward(self, layer: int, parameters: Floats, inputs: Floats, error: Floats) -> tuple[Floats, Floats]:
        """Return a layer's gradient as its vector, and the ``error`` of the layer before it.

        - ``parameters``: the vector of this layer alone.
        - ``error``: derivative by the layer's sums, that is, by its outputs before ReLU.

        - ``inputs``: inputs of this layer, from :meth:`forward`.

        The returned error is the derivative by the previous layer's sums, that is, before its ReLU: it is 0
        where an input of this layer is not above 0. Ignore it for layer 0, whose inputs are the images and not
        the outputs of a ReLU. The gradient adds the samples in order.
        """
        gradient = product(_with_one(inputs).T, error)
        input_error = product(error, self.matrix(layer, parameters)[:-1].T)
        return gradient.reshape(-1), np.where(inputs > 0, input_error, input_error.dtype.type(0))


def _with_one(inputs: Floats) -> Floats:
    """Return the inputs with a column of ones appended, the biases' input."""
    return np.concatenate([inputs, np.ones((len(inputs), 1), inputs.dtype)], axis=1)


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum and weight decay, in the parameters' type.

    v = momentum·v − rate·(gradient + decay·w), then w = w + v; each operation is rounded on its own.
    """

    rate: float
    momentum: float = 0.9
    decay: float = 0.0

    def step(self, parameters: Floats, velocity: Floats, gradient: Floats) -> None:
        """Update parameters and velocity in place."""
        kind = parameters.dtype.type
        velocity *= kind(self.momentum)
        velocity -= kind(self.rate) * (gradient + kind(self.decay) * parameters)
        parameters += velocity
