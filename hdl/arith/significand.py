"""Shared parts of 1/x, 1/√x and e^x: fields, seed tables, a series around a seed, scaling by 2^n."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from amaranth import Cat, Const, Mux, Value

from fanin.cnn.golden.functions import UPPER_BITS
from fanin.codec.facts import EXPONENT_BIAS, FLOAT_BITS, FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT
from fanin.hdl.arith.datapath import Constant, Datapath, Number

NAN = Const(QUIET_NAN, FLOAT_BITS)


def fraction_of(bits: Value) -> Value:
    """Return the fraction of a binary32."""
    return bits[:FRACTION_BITS]


def exponent_of(bits: Value) -> Value:
    """Return the biased exponent of a binary32."""
    return bits[FRACTION_BITS : FLOAT_BITS - 1]


def is_special(bits: Value) -> Value:
    """Return whether a binary32 is infinite or NaN."""
    return exponent_of(bits) == SPECIAL_EXPONENT


def is_nan(bits: Value) -> Value:
    """Return whether a binary32 is NaN."""
    return is_special(bits) & fraction_of(bits).any()


def infinity(sign: Value) -> Value:
    """Return infinity with the given sign."""
    return Cat(Const(0, FRACTION_BITS), Const(SPECIAL_EXPONENT, FLOAT_BITS - 1 - FRACTION_BITS), sign)


def from_one(fraction: Value, is_odd: Value) -> Value:
    """Return 1.fraction · 2^is_odd as binary32."""
    return Cat(fraction, Mux(is_odd, EXPONENT_BIAS + 1, EXPONENT_BIAS), Const(0, 1))


def table(values: Iterable[float]) -> list[int]:
    """Return the bits of values that binary32 represents exactly."""
    return [int(np.float32(value).view(np.uint32)) for value in values]


def refined(path: Datapath, m: Number, seed: Number, square: Number, terms: tuple[float, ...]) -> Number:
    """Return seed · (1 + t0·e + t1·e² + …), where e = 1 − m·square.

    ``seed`` approximates the result for the significand ``m``. ``square`` approximates 1/m: it is the seed of a
    reciprocal, and the square of the seed of a reciprocal square root. e is therefore small. Its product with
    the upper part of m is exact.
    """
    dropped_bits = FRACTION_BITS + 1 - UPPER_BITS
    upper = path.logic(lambda bits: Cat(Const(0, dropped_bits), bits[dropped_bits:]), m)
    lower = path.subtract(m, upper)
    upper_error = path.subtract(Constant(1), path.multiply(upper, square))
    error = path.subtract(upper_error, path.multiply(lower, square))
    series = path.multiply(path.polynomial(terms, error), error)
    return path.add(seed, path.multiply(seed, series))


def scaled(path: Datapath, y: Number, exponent: Number) -> Number:
    """Return y · 2^exponent of a positive, finite y: +0 below 2^-126, infinity from 2^128 on."""
    exponent_sum = path.logic(lambda bits, increment: exponent_of(bits) + increment, y, exponent)
    return path.logic(_saturated, exponent_sum, y)


def _saturated(exponent_sum: Value, y: Value) -> Value:
    """Return ``y`` with the exponent ``exponent_sum``, which is signed; 0 or infinity if it is out of range."""
    overflow = exponent_sum >= SPECIAL_EXPONENT
    underflow = exponent_sum <= 0
    exponent = Mux(
        overflow, SPECIAL_EXPONENT, Mux(underflow, 0, exponent_sum[: FLOAT_BITS - 1 - FRACTION_BITS])
    )
    return Cat(
        Mux(overflow | underflow, 0, fraction_of(y)), exponent[: FLOAT_BITS - 1 - FRACTION_BITS], Const(0, 1)
    )
