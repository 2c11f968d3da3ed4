"""Exponential function e^t in binary32; the golden model is ``fanin.cnn.golden.functions.exp``."""

from __future__ import annotations

from amaranth import Cat, Const, Mux, Value

from fanin.cnn.golden.functions import EXP_TERMS, LOG2_E
from fanin.codec.facts import EXPONENT_BIAS, FLOAT_BITS, FRACTION_BITS
from fanin.hdl.arith.datapath import Constant, Datapath, Number
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.arith.significand import NAN, exponent_of, fraction_of, is_nan, scaled

_INTEGER_BITS = 7  # integer bits of |z|; from |z| = 2^7 on exp overflows or underflows


def exp(path: Datapath, t: Number) -> Number:
    """Return e^t, from 1 + d products and sums, where d is the degree of the polynomial.

    The result is 0 or infinity beyond the range of binary32.
    """
    z = path.multiply(t, Constant(float(LOG2_E)))
    magnitude = path.logic(_floor_magnitude, path.logic(_shifted, z), z)
    zero_count = path.logic(leading_zeros, magnitude)
    floor = path.logic(_float, magnitude, zero_count, z)
    # Where ⌊z⌋ is saturated, the exponent alone makes the result 0 or infinite.
    fraction = path.logic(lambda bits, size: Mux(size[-1], 0, bits), path.subtract(z, floor), magnitude)
    exponent = path.logic(lambda bits, size: Mux(bits[-1], -size, size), z, magnitude)
    result = scaled(path, path.polynomial(EXP_TERMS, fraction), exponent)
    return path.logic(lambda bits, argument: Mux(is_nan(argument), NAN, bits), result, z)


def _shifted(z: Value) -> Value:
    """Return |z| with the binary point above bit 23, if 1 <= |z| < 2^7."""
    places = (exponent_of(z)[:3] + (1 - EXPONENT_BIAS) % 8)[:3]  # bits before the point
    return (Cat(fraction_of(z), Const(1, 1), Const(0, _INTEGER_BITS)) << places)[
        : FRACTION_BITS + 1 + _INTEGER_BITS
    ]


def _floor_magnitude(shifted: Value, z: Value) -> Value:
    """Return |⌊z⌋|, saturated at 2^7."""
    exponent = exponent_of(z)
    below_one = exponent < EXPONENT_BIAS
    increment = z[-1] & Mux(below_one, exponent != 0, shifted[: FRACTION_BITS + 1].any())
    floor = Mux(below_one, 0, shifted[FRACTION_BITS + 1 :]) + increment
    return Mux(exponent >= EXPONENT_BIAS + _INTEGER_BITS, 1 << _INTEGER_BITS, floor)


def _float(magnitude: Value, zero_count: Value, z: Value) -> Value:
    """Return ⌊z⌋ as binary32."""
    normalised = (magnitude << zero_count)[:_INTEGER_BITS]
    exponent = Mux(magnitude == 0, 0, EXPONENT_BIAS + _INTEGER_BITS - zero_count)
    fraction = Cat(Const(0, FRACTION_BITS - _INTEGER_BITS), normalised)
    return Cat(fraction, exponent[: FLOAT_BITS - 1 - FRACTION_BITS], z[-1])
