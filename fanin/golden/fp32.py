"""Binary32 arithmetic of ``fanin.hdl.arith.fp32``, bit for bit: NumPy's, without subnormals, with a single NaN.

Rounding is to nearest, ties to even. Subnormal operands count as zeros of their sign. A result whose exact
magnitude before rounding is below 2^-126 becomes a zero of its sign.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import QUIET_NAN

Float32 = npt.NDArray[np.float32]
_MIN_NORMAL = np.float32(2.0**-126)  # least normal magnitude
_NAN = np.uint32(QUIET_NAN).view(np.float32)


def add(a: npt.ArrayLike, b: npt.ArrayLike) -> Float32:
    """Return a + b, elementwise with broadcasting, as FP32Adder computes it."""
    with np.errstate(all="ignore"):
        total = flushed(a) + flushed(b)
        return canonical(flushed(total))  # a subnormal sum is exact


def multiply(a: npt.ArrayLike, b: npt.ArrayLike) -> Float32:
    """Return a · b, elementwise with broadcasting, as FP32Multiplier computes it."""
    with np.errstate(all="ignore"):
        exact = np.multiply(flushed(a), flushed(b), dtype=np.float64)  # exact: 48 bits
        return canonical(np.where(np.abs(exact) < _MIN_NORMAL, np.copysign(0, exact), exact).astype(np.float32))


def flushed(values: npt.ArrayLike) -> Float32:
    """Replace subnormals by zeros of their sign."""
    x = np.asarray(values, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        return x * (np.abs(x) >= _MIN_NORMAL)  # three times as fast as np.where; NaN · 0 stays NaN


def canonical(values: Float32) -> Float32:
    """Replace every NaN by the single NaN."""
    return np.where(np.isnan(values), _NAN, values)
