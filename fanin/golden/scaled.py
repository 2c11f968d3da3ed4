"""Float32 vectors as the 32-bit integers that a switch adds, bit for bit, with a scale per vector.

As in SwitchML, the workers first agree on a common exponent, the largest of all their values, and scale by it.
Here the switch finds it: of 256 integers, each worker sends a one at the index of its own largest exponent, and
zeros elsewhere. In the sum, the last index that is not zero is the common exponent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fanin import fixed
from fanin.codec.facts import EXPONENT_BIAS, EXPONENT_BITS, FRACTION_BITS, SPECIAL_EXPONENT

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
PLACES = 1 << EXPONENT_BITS


def largest_exponent(values: Float32) -> int:
    """Return the largest biased exponent of the values: 0 for zeros and subnormals, 255 if not all are
    finite.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    return int((bits >> FRACTION_BITS & SPECIAL_EXPONENT).max())


def one_hot(exponent: int) -> Int32:
    """Return the 256 integers that a worker sends for its exponent: a one at index ``exponent``, and zeros."""
    integers_of_worker = np.zeros(PLACES, np.int32)
    integers_of_worker[exponent] = 1
    return integers_of_worker


def common_exponent(sums: Int32) -> int:
    """Return the largest exponent of all workers from the sum of their :func:`one_hot` integers."""
    return int(np.flatnonzero(sums)[-1])


def fraction_bits(exponent: int, workers: int) -> int:
    """Return the fraction bits of the integers: the largest number with which no sum overflows."""
    return fixed.clamp_bits(workers) - (exponent + 1 - EXPONENT_BIAS)


def integers(values: Float32, exponent: int, workers: int) -> Int32:
    """Return a worker's integers for the common ``exponent``: rounded to nearest, ties to even, and clamped."""
    exact = np.rint(np.ldexp(values.astype(np.float64), fraction_bits(exponent, workers)))
    return fixed.clamp(exact.astype(np.int64), fixed.clamp_bits(workers)).astype(np.int32)


def floats(sums: Int32, exponent: int, workers: int) -> Float32:
    """Return the sums as binary32, rounded to nearest, ties to even."""
    with np.errstate(over="ignore"):
        return np.ldexp(sums.astype(np.float64), -fraction_bits(exponent, workers)).astype(np.float32)


def not_finite(count: int) -> Float32:
    """Return the result if a value of a worker is not finite: NaN everywhere."""
    return np.full(count, np.nan, np.float32)


def all_reduce(vectors: Sequence[Float32]) -> Float32:
    """Return the sum that every worker ends with."""
    workers = len(vectors)
    one_hots = [one_hot(largest_exponent(vector)) for vector in vectors]
    exponent = common_exponent(np.sum(one_hots, axis=0, dtype=np.int32))
    if exponent == SPECIAL_EXPONENT:
        return not_finite(vectors[0].size)
    integers_of_workers = [integers(vector, exponent, workers) for vector in vectors]
    return floats(np.sum(integers_of_workers, axis=0, dtype=np.int32), exponent, workers)
