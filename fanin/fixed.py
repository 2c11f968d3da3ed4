"""Number formats and roundings of GLM training in exact integer NumPy (docs/reference/numbers.md).

Weights, activations and gradients are signed 32-bit fixed point with ``frac`` fractional bits: the integer
``v`` means ``v / 2**frac``. Every function takes integers or integer arrays, computes in int64 and returns
int64. None overflows for arguments in the stated ranges. ``>>`` is the arithmetic shift, which rounds towards
minus infinity.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Never

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.wire.aggregation import VALUE_BITS

Int64 = npt.NDArray[np.int64]

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

DEFAULT_FRAC = 24
MIN_FRAC = 6  # one step of the σ table, 1/64, is at least one unit
MAX_FRAC = 28  # the σ table's range, ±8, is within int32

DEFAULT_PRECISION = 4
MAX_PRECISION = 8

MANTISSA_BITS = 16
MAX_SHIFT = 39
MIN_RATE = 2.0**-24
MAX_RATE = 2.0**15
MAX_DECAY = 24  # maximum shift by which weights decay; with a larger shift rounding would dominate

SIGMA_RANGE = 8  # the σ table covers [-8, 8)
SIGMA_STEP_BITS = 6  # step of 1/64
SIGMA_ENTRIES = 2 * SIGMA_RANGE << SIGMA_STEP_BITS
MAX_SIGMA_FRACTION = 16  # maximum bits of FA between two entries that interpolation uses


class Loss(IntEnum):
    """Loss function, as encoded in the run-time register."""

    LINEAR = 0
    LOGISTIC = 1
    HINGE = 2

    @property
    def key(self) -> str:
        """Key of ``LOSSES``: the loss's name in options, messages and JSON."""
        return self.name.lower()

    @property
    def classifies(self) -> bool:
        """True if labels are classes, 0 and 1; False if they are targets."""
        match self:
            case Loss.LINEAR:
                return False
            case Loss.LOGISTIC | Loss.HINGE:
                return True
            case _:
                raise unknown_loss(self)


#: Losses by their names for users.
LOSSES = {loss.key: loss for loss in Loss}


def unknown_loss(loss: Never) -> ValueError:
    """Return the error for a loss that a match statement does not handle.

    By the type Never, type checkers report such a statement too.
    """
    return ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}")


def check_frac(frac: int) -> None:
    """Raise ValueError unless ``frac`` is in 6…28."""
    if not MIN_FRAC <= frac <= MAX_FRAC:
        raise ValueError(f"frac must be in {MIN_FRAC}…{MAX_FRAC}, not {frac!r}")


def clamp_bits(workers: int) -> int:
    """Return c = 31 − ceil(log2 W): W values in [−2^c, 2^c − 1] cannot overflow a 32-bit sum."""
    return VALUE_BITS - 1 - (workers - 1).bit_length()


def clamp(x: npt.ArrayLike, c: int) -> Int64:
    """Return the value in [−2^c, 2^c − 1] nearest to the int64 ``x``."""
    return np.clip(np.asarray(x, dtype=np.int64), -(1 << c), (1 << c) - 1)


def saturate32(x: npt.ArrayLike) -> Int64:
    """Return the int32 value nearest to the int64 ``x``."""
    return clamp(x, VALUE_BITS - 1)


def bit_serial(q: npt.ArrayLike, x: npt.ArrayLike, precision: int) -> Int64:
    """Return Σ_j b_j · (x >> j), j = 1…``precision``, where b_1 is the most significant bit of ``q``. Exact.

    ``q`` is an unsigned fraction of ``precision`` bits, ``x`` an int32. All products of a feature with a weight
    (forward) or with a scale (backward) are computed so: each bit plane rounds down separately.
    """
    q, x = np.asarray(q, dtype=np.int64), np.asarray(x, dtype=np.int64)
    total: Int64 = np.zeros(np.broadcast_shapes(q.shape, x.shape), dtype=np.int64)
    for j in range(1, precision + 1):
        total += (q >> (precision - j) & 1) * (x >> j)
    return total


class LearningRate(NamedTuple):
    """Learning rate per sample, γ/B = ``mantissa / 2**shift``: mantissa in [2^15, 2^16), shift in 0…39."""

    mantissa: int
    shift: int


def rate_of(gamma: float, batch: int) -> LearningRate:
    """Return γ/B for the learning rate ``gamma`` and mini-batches of ``batch``. Raises InputError."""
    if not MIN_RATE <= gamma / batch < MAX_RATE:
        low, high = MIN_RATE * batch, MAX_RATE * batch
        raise InputError(
            f"lr must be at least {low:.3g} and below {high:,.0f} for a batch of {batch}, not {gamma:g}"
        )
    return learning_rate(gamma / batch)


def learning_rate(gamma_over_b: float) -> LearningRate:
    """Return γ/B as a 16-bit mantissa, rounded half to even, and a shift.

    A mantissa that rounds up to 2^16 becomes 2^15 with one less shift. Raises InputError unless
    2^-24 <= γ/B < 2^15.
    """
    if not MIN_RATE <= gamma_over_b < MAX_RATE:
        raise InputError(f"learning rate / batch size must be in [2^-24, 2^15), not {gamma_over_b:g}")
    fraction, exponent = math.frexp(gamma_over_b)  # fraction in [½, 1)
    shift = MANTISSA_BITS - exponent
    mantissa = round(math.ldexp(fraction, MANTISSA_BITS))
    if mantissa == 1 << MANTISSA_BITS:
        return LearningRate(mantissa >> 1, shift - 1)
    return LearningRate(mantissa, shift)


def scale(df: npt.ArrayLike, mantissa: int, shift: int) -> Int64:
    """Return floor(df · mantissa / 2^shift), saturated to int32; ``df`` has at most 33 bits."""
    return saturate32(np.asarray(df, dtype=np.int64) * mantissa >> shift)


class Decay(NamedTuple):
    """L2 regularisation: every mini-batch subtracts 2^-``shift`` of each weight from it; 0 for no decay.

    ``spared``: column whose weight does not decay, that of the bias.
    """

    shift: int = 0
    spared: int | None = None


NO_DECAY = Decay()


def decay_of(l2: float, gamma: float, *, spared: int | None = None) -> Decay:
    """Return the decay whose λ (:func:`l2_of`) is nearest to ``l2`` by ratio, at the learning rate ``gamma``.

    Raises InputError for a negative λ, and for a λ that differs from every possible one by more than a factor
    of √2.
    """
    if not 0 <= l2 < math.inf:
        raise InputError(f"l2 must be at least 0 and finite, not {l2:g}")
    if l2 == 0:
        return NO_DECAY
    shift = -round(math.log2(l2) + math.log2(gamma))
    if not 1 <= shift <= MAX_DECAY:
        low, high = l2_of(MAX_DECAY, gamma), l2_of(1, gamma)
        raise InputError(f"l2 must be 0 or from {low:.3g} to {high:.3g} at learning rate {gamma:g}, not {l2:g}")
    return Decay(shift, spared)


def l2_of(shift: int, gamma: float) -> float:
    """Return λ at the learning rate ``gamma``: γ·λ = 2^-``shift``, and 0 for shift 0."""
    return math.ldexp(1 / gamma, -shift) if shift else 0.0


def decay(x: npt.ArrayLike, shift: int) -> Int64:
    """Return the decrement of an int32 weight: x / 2^``shift``, or 0 for shift 0.

    The decrement is rounded away from 0, so that the weight reaches 0.
    """
    x = np.asarray(x, dtype=np.int64)
    if shift == 0:
        return np.zeros_like(x)
    return np.sign(x) * (np.abs(x) + (1 << shift) - 1 >> shift)


@lru_cache
def sigma_table(frac: int) -> Int64:
    """Return T[i] = σ(−8 + i/64) · 2^frac, rounded half to even, i = 0…1024; read-only.

    Entry 1024 serves only as the right neighbour of entry 1023.
    """
    check_frac(frac)
    points = np.arange(SIGMA_ENTRIES + 1) / (1 << SIGMA_STEP_BITS) - SIGMA_RANGE
    table = np.rint(np.ldexp(1 / (1 + np.exp(-points)), frac)).astype(np.int64)
    table.flags.writeable = False
    return table


def sigma_fraction_bits(frac: int) -> int:
    """Return n = min(16, frac − 6): bits of FA below the table index that interpolation uses."""
    return min(MAX_SIGMA_FRACTION, frac - SIGMA_STEP_BITS)


def sigmoid(fa: npt.ArrayLike, frac: int) -> Int64:
    """Return σ(FA) in [0, 2^frac] from the table.

    With t = FA + 8·2^frac, i = t >> (frac − 6) selects the entry, and r is the next n bits of t
    (``sigma_fraction_bits``; lower bits are dropped). σ = T[i] + ((T[i+1] − T[i])·r >> n). Below −8 the result
    is 0, from 8 on 2^frac.
    """
    table, n, step = sigma_table(frac), sigma_fraction_bits(frac), frac - SIGMA_STEP_BITS
    t = np.asarray(fa, dtype=np.int64) + (SIGMA_RANGE << frac)
    i = np.clip(t >> step, 0, SIGMA_ENTRIES - 1)
    r = t >> (step - n) & (1 << n) - 1
    interpolated = table[i] + ((table[i + 1] - table[i]) * r >> n)
    return np.where(t < 0, 0, np.where(t >= 2 * SIGMA_RANGE << frac, 1 << frac, interpolated))


def df(fa: npt.ArrayLike, y: npt.ArrayLike, loss: Loss, frac: int) -> Int64:
    """Return the derivative of the loss by FA, exact, in 33 bits; ``fa`` and ``y`` are int32 (see ``labels``).

    linear: FA − y. logistic: σ(FA) − y. hinge: −y where y·FA < 1, else 0.
    """
    fa, y = np.asarray(fa, dtype=np.int64), np.asarray(y, dtype=np.int64)
    match loss:
        case Loss.LINEAR:
            return fa - y
        case Loss.LOGISTIC:
            return sigmoid(fa, frac) - y
        case Loss.HINGE:
            margin = np.where(y > 0, fa, -fa)
            return np.where(margin < 1 << frac, -y, 0)
        case _:
            raise unknown_loss(loss)


def labels(y: npt.ArrayLike, loss: Loss, frac: int) -> npt.NDArray[np.int32]:
    """Return labels in the format of the label store.

    linear: the targets, rounded half to even (y · 2^frac); raises InputError if one does not fit int32. For
    other losses ``y`` is the class, 0 for the smaller label and 1 for the larger. logistic: 0 and 2^frac.
    hinge: −2^frac and 2^frac.
    """
    check_frac(frac)
    y = np.asarray(y, dtype=np.float64)
    match loss:
        case Loss.LINEAR | Loss.LOGISTIC:
            pass
        case Loss.HINGE:
            y = 2 * y - 1
        case _:
            raise unknown_loss(loss)
    fixed = np.rint(np.ldexp(y, frac))
    outside = ~((fixed >= INT32_MIN) & (fixed <= INT32_MAX))
    if outside.any():
        limit = 2 ** (VALUE_BITS - 1 - frac)
        raise InputError(
            f"label {y[outside][0]:g} does not fit 32 bits with {frac} fractional bits: "
            f"labels must be in [-{limit}, {limit}), or use a smaller --frac"
        )
    return fixed.astype(np.int32)
