"""Reciprocal square root 1/√x in binary32; the golden model is ``fanin.cnn.golden.functions.rsqrt``."""

from __future__ import annotations

from amaranth import Cat, Const, Mux, Value

from fanin.cnn.golden.functions import RSQRT_SEEDS, RSQRT_TERMS, SEED_BITS, SEED_INDEX_BITS
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

_SEEDS = table(seed / 2**SEED_BITS for seed in RSQRT_SEEDS)
_SQUARES = table((seed / 2**SEED_BITS) ** 2 for seed in RSQRT_SEEDS)


def rsqrt(path: Datapath, x: Number) -> Number:
    """Return 1/√x, from 6 products and 6 sums.

    Zeros give +infinity, infinity +0; negative numbers and NaN give NaN.
    """
    index = path.logic(lambda bits: Cat(fraction_of(bits)[1 - SEED_INDEX_BITS :], _is_odd(bits)), x)
    seed, square = (path.logic(lambda i, t=entries: lookup(t, i), index) for entries in (_SEEDS, _SQUARES))
    m = path.logic(lambda bits: from_one(fraction_of(bits), _is_odd(bits)), x)
    exponent = path.logic(lambda bits: EXPONENT_BIAS + _is_odd(bits) - exponent_of(bits) >> 1, x)
    y = scaled(path, refined(path, m, seed, square, RSQRT_TERMS), exponent)
    return path.logic(_result, y, x)


def _is_odd(bits: Value) -> Value:
    """Return whether the exponent without its bias is odd; the bias itself is odd."""
    return ~bits[FRACTION_BITS]


def _result(y: Value, x: Value) -> Value:
    positive = Mux(is_special(x), Const(0, FLOAT_BITS), y)
    return Mux(exponent_of(x) == 0, infinity(Const(0, 1)), Mux(x[-1] | is_nan(x), NAN, positive))
