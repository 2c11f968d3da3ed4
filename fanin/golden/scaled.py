"""Float32 vectors as the 32-bit integers that a switch adds, bit for bit: a scale for each vector.

As SwitchML does, the workers agree on the largest exponent first, and scale by it. Here the switch finds it:
each worker gives a one in the place of its own largest exponent, of 256 places, and zeros elsewhere.
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


def exponent(values: Float32) -> int:
    """The largest biased exponent of the values: 0 of zeros and subnormals, 255 of what is not finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return int((bits >> FRACTION_BITS & SPECIAL_EXPONENT).max())


def places(largest: int) -> Int32:
    """What a worker gives for its exponent: 256 integers."""
    given = np.zeros(PLACES, np.int32)
    given[largest] = 1
    return given


def largest(sums: Int32) -> int:
    """The largest exponent of all workers, from the sum of what they have given."""
    return int(np.flatnonzero(sums)[-1])


def fraction_bits(largest: int, workers: int) -> int:
    """How many bits of the integers stand behind the point: as many as no sum of ``workers`` overflows with."""
    return fixed.clamp_bits(workers) - (largest + 1 - EXPONENT_BIAS)


def integers(values: Float32, largest: int, workers: int) -> Int32:
    """What a worker gives: rounded to nearest, ties to even; what rounds up to the limit is one less."""
    exact = np.rint(np.ldexp(values.astype(np.float64), fraction_bits(largest, workers)))
    return fixed.clamp(exact.astype(np.int64), fixed.clamp_bits(workers)).astype(np.int32)


def floats(sums: Int32, largest: int, workers: int) -> Float32:
    """What a worker makes of the sums: rounded to binary32, ties to even."""
    with np.errstate(over="ignore"):
        return np.ldexp(sums.astype(np.float64), -fraction_bits(largest, workers)).astype(np.float32)


def not_finite(count: int) -> Float32:
    """What all become where a value of a worker is not finite."""
    return np.full(count, np.nan, np.float32)


def all_reduce(vectors: Sequence[Float32]) -> Float32:
    """The sum that every worker ends with."""
    workers = len(vectors)
    most = largest(np.sum([places(exponent(own)) for own in vectors], axis=0, dtype=np.int32))
    if most == SPECIAL_EXPONENT:
        return not_finite(vectors[0].size)
    given = [integers(own, most, workers) for own in vectors]
    return floats(np.sum(given, axis=0, dtype=np.int32), most, workers)
