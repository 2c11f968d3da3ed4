"""exp, reciprocal and 1/√x of binary32, bit-exact with the hardware.

Products (⊗), sums (⊕) and differences (⊖) are those of ``fanin.golden.fp32``: rounded to nearest even, no
subnormals, one NaN. This module has the only copy of the hardware's constants. docs/reference/numbers.md states
special values and errors.

**reciprocal, rsqrt** of x = 2^E·m, with m in [1, 2), for rsqrt in [1, 4) and E even:

1. Seed s = k / 512, 256 <= k < 512, from a table of 128. reciprocal: k is 512/(1 + (i + ½)/128) to nearest, i
   the upper 7 fraction bits. rsqrt: k is 512/√(2^o·(1 + (i + ½)/64)) to nearest, i the upper 6 fraction bits,
   o = 1 where the biased exponent is even, else 0.
2. q = s; for rsqrt q = s ⊗ s, which is exact.
3. m = u + l, u the significand's upper six bits with the leading one, l = m ⊖ u. The residual
   e = (1 ⊖ (u ⊗ q)) ⊖ (l ⊗ q) is 1 − m·q within 2^-30; u ⊗ q and 1 ⊖ (u ⊗ q) are exact.
4. y = s ⊕ (s ⊗ (e ⊗ (c1 ⊕ (e ⊗ (c2 ⊕ (e ⊗ c3)))))), c = (1, 1, 1) for reciprocal, (1/2, 3/8, 5/16) for rsqrt.
   Two steps of Newton's method instead would have an error of 1.24 and 1.22 units in the last place.
5. y·2^-E, for rsqrt y·2^(-E/2), with the sign of x. A result below 2^-126 is a zero of its sign.

**exp**: z = t ⊗ log2 e; n = floor z; f = z ⊖ n, in [0, 1]; p by Horner's rule from c6 to c0 = 1,
p ← (p ⊗ f) ⊕ c; the result is p·2^n. z < −127 gives +0, z >= 128 gives +∞.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import EXPONENT_BIAS, FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT
from fanin.golden.fp32 import Float32, add, multiply

Uint32 = npt.NDArray[np.uint32]

SEED_BITS = 9  #: bits of a seed s, whose value is s / 2^9; its leading bit is 1
SEED_INDEX_BITS = 7  #: bits of the significand that select a seed; for 1/√x, 6 and the exponent's parity
UPPER_BITS = 6  #: bits of the significand's upper part with the leading one: 6 + 2 · 9 bits are exact in 24
LOWER_BITS = FRACTION_BITS + 1 - UPPER_BITS  #: bits of the significand's lower part

#: Seeds of 1/m at the middle of each 1/128 of [1, 2).
RECIPROCAL_SEEDS = tuple(((1 << SEED_BITS + 9) // (257 + 2 * i) + 1) // 2 for i in range(128))
#: Seeds of 1/√m at the middle of each 1/64 of [1, 2), then of each 1/32 of [2, 4).
RSQRT_SEEDS = tuple(
    (isqrt((1 << 2 * SEED_BITS + 9) // (129 + 2 * i << odd)) + 1) // 2 for odd in (0, 1) for i in range(64)
)
#: Taylor coefficients of 1/(1 − e) and 1/√(1 − e) in the residual e, from e up.
RECIPROCAL_TERMS = (1.0, 1.0, 1.0)
RSQRT_TERMS = (1 / 2, 3 / 8, 5 / 16)

LOG2_E = np.float32(1.4426950408889634)
#: Coefficients of 2^f, f in [0, 1], from f⁰ up: least relative error with 1 at 0, rounded to binary32.
EXP_TERMS = (
    1.0,
    0.6931470632553101,
    0.24022908508777618,
    0.05548618361353874,
    0.009673775173723698,
    0.0012482288293540478,
    0.00021565984934568405,
)
EXP_UNDERFLOW = -EXPONENT_BIAS  #: floor z below which exp is 0
EXP_OVERFLOW = EXPONENT_BIAS + 1  #: floor z from which exp is +infinity

_FRACTION = np.uint32((1 << FRACTION_BITS) - 1)
_ONE = np.float32(1)
_NAN = np.uint32(QUIET_NAN).view(np.float32)
_INFINITY = np.float32(np.inf)


def reciprocal(x: npt.ArrayLike) -> Float32:
    """Return 1/x, elementwise. A zero or a subnormal gives the infinity of its sign.

    A result below 2^-126 is a zero. Error: 0.53 units in the last place.
    """
    x = np.asarray(x, dtype=np.float32)
    fraction, exponent = _fields(x)
    seed = seed_table(RECIPROCAL_SEEDS)[fraction >> FRACTION_BITS - SEED_INDEX_BITS]
    y = _refined(_significand(fraction), seed, seed, RECIPROCAL_TERMS)
    y = _scaled(y, EXPONENT_BIAS - exponent)
    y = np.where(exponent == 0, _INFINITY, np.where(exponent == SPECIAL_EXPONENT, np.float32(0), y))
    return np.where(np.isnan(x), _NAN, np.copysign(y, x))


def rsqrt(x: npt.ArrayLike) -> Float32:
    """Return 1/√x, elementwise. A zero or a subnormal of either sign gives +infinity, a negative number a NaN.

    Error: 0.54 units in the last place.
    """
    x = np.asarray(x, dtype=np.float32)
    fraction, exponent = _fields(x)
    is_odd = (exponent - EXPONENT_BIAS) & 1
    index = (is_odd << SEED_INDEX_BITS - 1) + (fraction >> FRACTION_BITS - SEED_INDEX_BITS + 1)
    seed = seed_table(RSQRT_SEEDS)[index]
    m = _scaled(_significand(fraction), is_odd)
    y = _scaled(_refined(m, seed, multiply(seed, seed), RSQRT_TERMS), (EXPONENT_BIAS + is_odd - exponent) >> 1)
    y = np.where(exponent == SPECIAL_EXPONENT, np.float32(0), y)
    return np.where(exponent == 0, _INFINITY, np.where(np.isnan(x) | np.signbit(x), _NAN, y))


def exp(t: npt.ArrayLike) -> Float32:
    """Return e^t, elementwise. A result below 2^-126 is +0, a result of 2^128 or more +infinity."""
    t = np.asarray(t, dtype=np.float32)
    z = multiply(t, LOG2_E)
    nan = np.isnan(z)
    n = np.clip(np.floor(np.where(nan, 0, z)), EXP_UNDERFLOW - 1, EXP_OVERFLOW)
    with np.errstate(invalid="ignore"):
        f = np.where((n < EXP_UNDERFLOW) | (n == EXP_OVERFLOW), 0, add(z, -n))
    power = np.full_like(f, EXP_TERMS[-1])
    for term in reversed(EXP_TERMS[:-1]):
        power = add(multiply(power, f), np.float32(term))
    return np.where(nan, _NAN, _scaled(power, n.astype(np.int64)))


def seed_table(seeds: tuple[int, ...]) -> Float32:
    """Return the table of seeds as binary32 numbers."""
    return np.array(seeds, dtype=np.float32) / np.float32(1 << SEED_BITS)


def _refined(m: Float32, seed: Float32, square: Float32, terms: tuple[float, float, float]) -> Float32:
    """Return seed · (1 + t0·e + t1·e² + t2·e³) with e = 1 − m·square, within 2^-30. ``terms``: t0, t1, t2."""
    upper = (m.view(np.uint32) >> LOWER_BITS << LOWER_BITS).view(np.float32)
    e = add(add(_ONE, -multiply(upper, square)), -multiply(add(m, -upper), square))
    power = np.full_like(e, terms[-1])
    for term in terms[-2::-1]:
        power = add(multiply(power, e), np.float32(term))
    return add(seed, multiply(seed, multiply(power, e)))


def _fields(x: Float32) -> tuple[Uint32, npt.NDArray[np.int64]]:
    """Return the fraction and the biased exponent of each number."""
    bits = x.view(np.uint32)
    return bits & _FRACTION, (bits >> FRACTION_BITS & SPECIAL_EXPONENT).astype(np.int64)


def _significand(fraction: Uint32) -> Float32:
    """Return the number 1.fraction."""
    return (fraction | _ONE.view(np.uint32)).view(np.float32)


def _scaled(y: Float32, exponent: npt.NDArray[np.int64]) -> Float32:
    """Return y · 2^exponent: +0 below 2^-126, infinity from 2^128. ``y``: positive and finite."""
    fraction, own_exponent = _fields(y)
    total = own_exponent + exponent
    bits = (np.clip(total, 0, SPECIAL_EXPONENT) << FRACTION_BITS).astype(np.uint32)
    bits |= np.where((total > 0) & (total < SPECIAL_EXPONENT), fraction, np.uint32(0))
    return bits.view(np.float32)
