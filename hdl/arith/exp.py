"""e^t of binary32, as ``fanin.cnn.golden.functions.exp`` states it."""

from __future__ import annotations

from amaranth import Cat, Const, Mux, Value

from fanin.cnn.golden.functions import EXP_TERMS, LOG2_E
from fanin.codec.facts import EXPONENT_BIAS, FLOAT_BITS, FRACTION_BITS
from fanin.hdl.arith.datapath import Constant, Datapath, Number
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.arith.significand import NAN, exponent_of, fraction_of, is_nan, scaled

_WHOLE_BITS = 7  # of |z|, below which exp neither overflows nor vanishes


def exp(path: Datapath, t: Number) -> Number:
    """e^t: 1 + d products and sums, d the degree of the polynomial. 0 and infinity beyond the range."""
    z = path.multiply(t, Constant(float(LOG2_E)))
    magnitude = path.logic(_floor_magnitude, path.logic(_shifted, z), z)
    places = path.logic(leading_zeros, magnitude)
    whole = path.logic(_float, magnitude, places, z)
    # Where ⌊z⌋ is saturated, the exponent alone makes the result 0 or infinite.
    fraction = path.logic(lambda f, of: Mux(of[-1], 0, f), path.subtract(z, whole), magnitude)
    exponent = path.logic(lambda bits, of: Mux(bits[-1], -of, of), z, magnitude)
    power = scaled(path, path.polynomial(EXP_TERMS, fraction), exponent)
    return path.logic(lambda bits, of: Mux(is_nan(of), NAN, bits), power, z)


def _shifted(z: Value) -> Value:
    """|z| with the point above bit 23, if 1 <= |z| < 2^7."""
    places = (exponent_of(z)[:3] + (1 - EXPONENT_BIAS) % 8)[:3]  # bits in front of the point
    return (Cat(fraction_of(z), Const(1, 1), Const(0, _WHOLE_BITS)) << places)[
        : FRACTION_BITS + 1 + _WHOLE_BITS
    ]


def _floor_magnitude(shifted: Value, z: Value) -> Value:
    """|⌊z⌋|, 2^7 at most."""
    exponent = exponent_of(z)
    below = exponent < EXPONENT_BIAS
    up = z[-1] & Mux(below, exponent != 0, shifted[: FRACTION_BITS + 1].any())
    floor = Mux(below, 0, shifted[FRACTION_BITS + 1 :]) + up
    return Mux(exponent >= EXPONENT_BIAS + _WHOLE_BITS, 1 << _WHOLE_BITS, floor)


def _float(magnitude: Value, places: Value, z: Value) -> Value:
    """⌊z⌋ as binary32."""
    normal = (magnitude << places)[:_WHOLE_BITS]
    exponent = Mux(magnitude == 0, 0, EXPONENT_BIAS + _WHOLE_BITS - places)
    fraction = Cat(Const(0, FRACTION_BITS - _WHOLE_BITS), normal)
    return Cat(fraction, exponent[: FLOAT_BITS - 1 - FRACTION_BITS], z[-1])
