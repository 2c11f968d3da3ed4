"""Reciprocal 1/x in binary32; the golden model is ``fanin.cnn.golden.functions.reciprocal``."""

from __future__ import annotations

from amaranth import Cat, Const, Mux, Value

from fanin.cnn.golden.functions import RECIPROCAL_SEEDS, RECIPROCAL_TERMS, SEED_BITS, SEED_INDEX_BITS
from fanin.codec.facts import EXPONENT_BIAS, FLOAT_BITS, FRACTION_BITS
from fanin.hdl.arith.datapath import Datapath, Number
from fanin.hdl.arith.select import lookup
from fanin.hdl.arith.significand import (
    NAN,
    exponent_of,
    fraction_of,
    from_one,
    infinity,
    is_nan,
    is_special,
    refined,
    scaled,
    table,
)

_SEEDS = table(seed / 2**SEED_BITS for seed in RECIPROCAL_SEEDS)


def reciprocal(path: Datapath, x: Number) -> Number:
    """Return 1/x, from 5 products and 6 sums.

    Zero gives infinity and infinity zero, with the sign of x; NaN gives NaN.
    """
    index = slice(FRACTION_BITS - SEED_INDEX_BITS, FRACTION_BITS)
    seed = path.logic(lambda bits: lookup(_SEEDS, fraction_of(bits)[index]), x)
    m = path.logic(lambda bits: from_one(fraction_of(bits), Const(0, 1)), x)
    exponent = path.logic(lambda bits: EXPONENT_BIAS - exponent_of(bits), x)
    y = scaled(path, refined(path, m, seed, seed, RECIPROCAL_TERMS), exponent)
    return path.logic(_result, y, x)


def _result(y: Value, x: Value) -> Value:
    sign = x[-1]
    finite = Mux(exponent_of(x) == 0, infinity(sign), Cat(y[: FLOAT_BITS - 1], sign))
    return Mux(is_nan(x), NAN, Mux(is_special(x), Cat(Const(0, FLOAT_BITS - 1), sign), finite))
