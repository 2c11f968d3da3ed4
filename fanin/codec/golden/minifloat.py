"""Conversion between binary32 and narrow floating-point formats, for MX elements, bfloat16 and binary16."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import EXPONENT_BIAS, FRACTION_BITS, QUIET_NAN
from fanin.codec.formats import RANDOM_BITS, Minifloat
from fanin.codec.golden.rounding import round_nearest, round_stochastic

UInt8 = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

_MAX_SHIFT = FRACTION_BITS + 1 + RANDOM_BITS + 2  # a significand shifted by more rounds to zero, too


def fields(values: Float32) -> tuple[Int64, Int64, Int64]:
    """Return sign (0 or 1), exponent field and fraction of binary32 values, in their shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    exponent = (bits >> FRACTION_BITS & 0xFF).astype(np.int64)
    fraction = (bits & (1 << FRACTION_BITS) - 1).astype(np.int64)
    return (bits >> 31).astype(np.int64), exponent, fraction


def magnitudes(
    exponent: Int64, fraction: Int64, scale: Int64 | int, layout: Minifloat, random: UInt8 | None
) -> Int64:
    """Return the magnitudes of finite values · 2^-``scale`` in a format.

    - ``exponent``, ``fraction``: fields of binary32. The results of zeros and subnormal values are right only
      if the scale is at least -126 - ``layout.min_exponent``.
    - ``random``: 8 random bits of each value for stochastic rounding; None: nearest, ties to even.

    A result above ``layout.largest`` does not fit; larger values have larger results.
    """
    significand = np.where(exponent > 0, 1 << FRACTION_BITS | fraction, fraction)
    power = np.maximum(exponent, 1) - EXPONENT_BIAS - scale
    step_power = np.maximum(power, layout.min_exponent)  # codes of one power of two are evenly spaced
    shift = np.minimum(FRACTION_BITS - layout.fraction + step_power - power, _MAX_SHIFT)
    if random is None:
        rounded = round_nearest(significand, shift)
    else:
        rounded = round_stochastic(significand, shift, random)
    # A normal significand has a leading one, which adds 1 to the exponent field; so does a carry.
    return (step_power - layout.min_exponent << layout.fraction) + rounded


@cache
def numbers(layout: Minifloat) -> Float64:
    """Return the number of every magnitude of a format, among them infinity and NaN."""
    magnitude = np.arange(1 << layout.bits - 1)
    field, fraction = magnitude >> layout.fraction, magnitude & (1 << layout.fraction) - 1
    significand = np.where(field > 0, 1 << layout.fraction | fraction, fraction).astype(np.float64)
    result = np.ldexp(significand, np.maximum(field, 1) - layout.bias - layout.fraction)
    if layout.infinity is not None:
        result[layout.infinity] = np.inf
        result[layout.infinity + 1 :] = np.nan
    elif layout.nan is not None:
        result[layout.nan] = np.nan
    result.setflags(write=False)
    return result


def to_binary32(sign: npt.NDArray, numbers: Float64) -> Float32:
    """Return numbers with their sign as binary32, rounded; above its range infinity, NaN as the single NaN."""
    with np.errstate(over="ignore"):
        values = np.where(sign, -numbers, numbers).astype(np.float32)
    return np.where(np.isnan(values), np.uint32(QUIET_NAN).view(np.float32), values)
