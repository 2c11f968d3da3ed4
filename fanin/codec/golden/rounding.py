"""Rounding of shifted significands, and the random bits of stochastic rounding
(docs/systems/codec.md, "Stochastic rounding").
"""

from __future__ import annotations

import functools
import operator

import numpy as np
import numpy.typing as npt

from fanin.codec.formats import LFSR_BITS, LFSR_TAPS, LFSR_WARM_UP, MAX_ROUNDING_SEED, RANDOM_BITS

UInt8 = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

_POLYNOMIAL = 1 << LFSR_BITS | sum(1 << tap for tap in LFSR_TAPS)


def round_nearest(significand: Int64, shift: Int64) -> Int64:
    """Return ``significand`` · 2^-``shift`` rounded to the nearest integer, ties to even; shift is 1 to 62."""
    quotient = significand >> shift
    remainder = significand - (quotient << shift)
    half = np.int64(1) << shift - 1
    return quotient + ((remainder > half) | (remainder == half) & (quotient & 1 == 1))


def round_stochastic(significand: Int64, shift: Int64, random: UInt8) -> Int64:
    """Return ``significand`` · 2^-``shift`` rounded up with the probability of its cut-off part.

    The upper 8 bits of that part and ``random`` are added, with the ninth bit as the carry in; the carry out
    rounds up. The other bits are ignored. ``significand`` is below 2^54, ``shift`` 0 to 62.
    """
    extended = significand << RANDOM_BITS + 1 >> shift
    cut_off = extended & (1 << RANDOM_BITS + 1) - 1
    carry = (cut_off >> 1) + (cut_off & 1) + random >> RANDOM_BITS
    return (extended >> RANDOM_BITS + 1) + carry


def random_bytes(count: int, seed: int) -> UInt8:
    """Return the random bits of ``count`` values: byte i has bits 8i to 8i + 7 of the sequence, lowest first.

    ``seed``: 1 to 2^32 - 1, else ValueError.
    """
    sequence = _sequence(lfsr_state(seed))
    size = len(sequence)
    values = np.empty(max(count, size), dtype=np.uint8)
    values[:size] = sequence
    while size < count:
        # The polynomial's square is the same with all exponents doubled, so s[n + 32 m] follows from
        # s[n + tap · m] for every power of two m. Bytes are m = 8.
        stride = 1 << (size // LFSR_BITS).bit_length() - 1
        length = min(stride * (LFSR_BITS - max(LFSR_TAPS)), count - size)
        first = size - LFSR_BITS * stride
        parts = [values[first + tap * stride :][:length] for tap in LFSR_TAPS]
        values[size : size + length] = np.bitwise_xor.reduce(parts)
        size += length
    return values[:count]


def _sequence(state: int) -> UInt8:
    """Return the first ``LFSR_BITS`` bytes of the sequence that begins with the bits of ``state``."""
    bits, step = state, LFSR_BITS - max(LFSR_TAPS)  # bits that follow from known ones
    for n in range(0, LFSR_BITS * (RANDOM_BITS - 1), step):
        new_bits = functools.reduce(operator.xor, (bits >> n + tap for tap in LFSR_TAPS))
        bits |= (new_bits & (1 << step) - 1) << n + LFSR_BITS
    known = bits & (1 << LFSR_BITS * RANDOM_BITS) - 1
    return np.frombuffer(known.to_bytes(LFSR_BITS * RANDOM_BITS // 8, "little"), dtype=np.uint8)


def lfsr_state(seed: int) -> int:
    """Return the register that a seed starts with, whose bit k is bit k of the sequence.

    ``seed``: 1 to 2^32 - 1, else ValueError. The register is the seed after ``LFSR_WARM_UP`` steps.
    """
    _check_seed(seed)
    return _step(seed, LFSR_WARM_UP)


def _check_seed(seed: int) -> None:
    if seed not in range(1, MAX_ROUNDING_SEED + 1):
        raise ValueError(f"seed must be from 1 to 2^{LFSR_BITS} - 1, not {seed!r}")


def advance(seed: int, values: int) -> int:
    """Return the seed whose sequence is that of ``seed`` after the bits of ``values`` values."""
    return _step(seed, values * RANDOM_BITS)


def derived_seed(seed: int, *numbers: int) -> int:
    """Return a seed for each sequence of ``numbers``, such as a rank and a step: different and unrelated ones.

    ``seed``: 1 to 2^32 - 1, else ValueError. ``numbers``: 0 or more each.
    """
    _check_seed(seed)
    mixed = _mixed(seed)
    for number in numbers:
        mixed = _mixed(mixed + (number + 1) * 0x9E3779B9)
    return mixed or 1


def _mixed(number: int) -> int:
    """Return a bijective hash of 32 bits (the finaliser of MurmurHash3)."""
    number &= (1 << 32) - 1
    number = (number ^ number >> 16) * 0x85EBCA6B & (1 << 32) - 1
    number = (number ^ number >> 13) * 0xC2B2AE35 & (1 << 32) - 1
    return number ^ number >> 16


def lfsr_taps(bit: int) -> int:
    """Return the bits of a register whose XOR is bit ``bit`` of the sequence that begins with the register."""
    result, square = 1, 2
    while bit:
        if bit & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        bit >>= 1
    return result


def _multiply(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the register's; bit k is the factor of x^k."""
    product = 0
    while right:
        if right & 1:
            product ^= left
        right >>= 1
        left <<= 1
        if left >> LFSR_BITS:
            left ^= _POLYNOMIAL
    return product


@functools.lru_cache(maxsize=256)
def _step_taps(steps: int) -> list[int]:
    """Return the bits whose XOR is each bit of the register after ``steps`` steps."""
    taps = [lfsr_taps(steps)]
    for _ in range(LFSR_BITS - 1):
        taps.append(_multiply(taps[-1], 2))
    return taps


def _step(state: int, steps: int) -> int:
    """Return the register after ``steps`` steps."""
    return sum((state & taps).bit_count() % 2 << k for k, taps in enumerate(_step_taps(steps)))
