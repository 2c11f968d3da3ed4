"""The arithmetic of ``fanin.golden.fp32`` against exact rationals."""

import operator
import random
from fractions import Fraction

import numpy as np
import pytest

from fanin.codec.facts import QUIET_NAN
from fanin.golden import fp32
from tests.fp32_values import SPECIAL, close_pairs
from tests.support import new_seed

BIAS, FRACTION, INFINITE = 127, 23, 255


def rounded(exact, sign):
    """An exact rational in binary32: nearest, ties to even, zero below 2^-126; ``sign`` is that of a zero."""
    sign = exact < 0 if exact else sign
    size = abs(exact)
    if size < Fraction(1, 1 << BIAS - 1):
        return sign << 31
    exponent = BIAS
    while size >= 2:
        size, exponent = size / 2, exponent + 1
    while size < 1:
        size, exponent = size * 2, exponent - 1
    fraction = round(size * (1 << FRACTION))  # Python rounds ties to even
    if fraction == 2 << FRACTION:
        fraction, exponent = 1 << FRACTION, exponent + 1
    if exponent >= INFINITE:
        return sign << 31 | INFINITE << FRACTION
    return sign << 31 | exponent << FRACTION | fraction - (1 << FRACTION)


def unpacked(bits):
    """Sign, exponent, and the value of a number that is one; a subnormal is zero."""
    sign, exponent, fraction = bits >> 31, bits >> FRACTION & INFINITE, bits & (1 << FRACTION) - 1
    if exponent in (0, INFINITE):
        return sign, Fraction(0), exponent == INFINITE and not fraction, exponent == INFINITE and fraction > 0
    value = Fraction((1 << FRACTION | fraction) * (-1) ** sign, 1 << FRACTION) * Fraction(2) ** (
        exponent - BIAS
    )
    return sign, value, False, False


def exact_sum(a, b):
    (s, x, inf_a, nan_a), (t, y, inf_b, nan_b) = unpacked(a), unpacked(b)
    if nan_a or nan_b or (inf_a and inf_b and s != t):
        return QUIET_NAN
    if inf_a or inf_b:
        return (s if inf_a else t) << 31 | INFINITE << FRACTION
    return rounded(x + y, s & t)


def exact_product(a, b):
    (s, x, inf_a, nan_a), (t, y, inf_b, nan_b) = unpacked(a), unpacked(b)
    if nan_a or nan_b or (inf_a and not inf_b and not y) or (inf_b and not inf_a and not x):
        return QUIET_NAN
    if inf_a or inf_b:
        return (s ^ t) << 31 | INFINITE << FRACTION
    return rounded(x * y, s ^ t)


def compare(function, exact, pairs):
    a, b = (np.array(column, dtype=np.uint32).view(np.float32) for column in zip(*pairs, strict=True))
    got = function(a, b)
    assert got.dtype == np.float32
    wrong = [
        (hex(x), hex(y), hex(z), hex(exact(x, y)))
        for (x, y), z in zip(pairs, got.view(np.uint32).tolist(), strict=True)
        if z != exact(x, y)
    ]
    assert wrong == []


OPERATIONS = pytest.mark.parametrize(
    ("function", "exact"), [(fp32.add, exact_sum), (fp32.multiply, exact_product)], ids=["add", "multiply"]
)


@OPERATIONS
def test_special_values_in_all_pairs(function, exact):
    compare(function, exact, [(a, b) for a in SPECIAL for b in SPECIAL])


@OPERATIONS
def test_random_values_near_and_far(function, exact):
    compare(function, exact, close_pairs(random.Random(new_seed()), 4000))


@pytest.mark.parametrize(("function", "exact"), [(fp32.multiply, exact_product)])
def test_products_around_the_least_and_the_greatest(function, exact):
    """Whose exponents add up to the limits: what rounding could lift over them."""
    rng, pairs = random.Random(new_seed()), []
    for _ in range(2000):
        e = rng.randrange(1, 255)
        f = min(max(rng.choice([BIAS, BIAS + INFINITE - 1]) - e + rng.choice([-1, 0, 0, 1]), 1), 254)
        fractions = [rng.choice([0, 1, (1 << FRACTION) - 1, rng.getrandbits(FRACTION)]) for _ in range(2)]
        pairs.append((e << FRACTION | fractions[0], f << FRACTION | fractions[1] | rng.getrandbits(1) << 31))
    compare(function, exact, pairs)


def test_a_product_just_below_the_least_is_flushed_although_it_would_round_up():
    below_one, least = np.uint32(0x3F7FFFFF).view(np.float32), np.uint32(0x00800000).view(np.float32)
    assert fp32.multiply(below_one, least).view(np.uint32) == 0
    assert operator.mul(float(below_one), float(least)) < 2.0**-126


def test_shapes_are_broadcast_and_plain_numbers_taken():
    assert fp32.add(np.ones((2, 1), np.float32), [1.0, 2.0]).tolist() == [[2, 3], [2, 3]]
    assert float(fp32.multiply(3.0, -0.5)) == -1.5
