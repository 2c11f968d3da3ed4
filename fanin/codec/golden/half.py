"""bfloat16 and binary16 as codecs: each value is a code of 16 bits (docs/systems/codec.md)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import SPECIAL_EXPONENT, Half, is_stochastic
from fanin.codec.formats import Minifloat
from fanin.codec.golden.minifloat import fields, magnitudes, numbers, to_binary32
from fanin.codec.golden.rounding import random_bytes

UInt16 = npt.NDArray[np.uint16]
Float32 = npt.NDArray[np.float32]


def compress(values: Float32, config: Half, seed: int = 1) -> UInt16:
    """Return the code of each value, in the shape of ``values``.

    A value above the range becomes infinity; every NaN becomes the positive quiet NaN. ``seed``, 1 to 2^32 - 1,
    is that of stochastic rounding.
    """
    layout = config.layout
    infinity, nan = layout.infinity, layout.nan
    assert infinity is not None
    assert nan is not None
    sign, exponent, fraction = fields(values)
    random = random_bytes(exponent.size, seed).reshape(exponent.shape) if is_stochastic(config) else None
    finite = np.minimum(magnitudes(exponent, fraction, 0, layout, random), infinity)
    is_special, is_nan = exponent == SPECIAL_EXPONENT, (exponent == SPECIAL_EXPONENT) & (fraction > 0)
    magnitude = np.where(is_nan, nan, np.where(is_special, infinity, finite))
    return (np.where(is_nan, 0, sign) << layout.bits - 1 | magnitude).astype(np.uint16)


def decompress(codes: UInt16, config: Half) -> Float32:
    """Return the values of codes, exactly; every NaN becomes the single NaN."""
    return _values(config.layout)[codes]


@cache
def _values(layout: Minifloat) -> Float32:
    """Return the value of every code of a format."""
    positive = numbers(layout)
    return np.concatenate([to_binary32(sign, positive) for sign in np.array([0, 1])])


def roundtrip(values: Float32, config: Half, seed: int = 1) -> Float32:
    """Return the values as the receiver decodes them, in the same shape; ``seed`` as for ``compress``."""
    return decompress(compress(values, config, seed), config)


def encode(values: Float32, config: Half, seed: int = 1) -> bytes:
    """Return the codes of ``values``, each with its lower byte first; ``seed`` as for ``compress``."""
    return compress(values, config, seed).astype("<u2").tobytes()


def decode(stream: bytes, count: int, config: Half) -> Float32:
    """Decode a stream of ``count`` values. Raises InputError unless its length matches."""
    size, _ = config.stream_limits(count)
    if len(stream) != size:
        raise InputError(f"compressed stream: {len(stream)} bytes, but {count} values take {size}")
    return decompress(np.frombuffer(stream, dtype="<u2"), config)


def decode_prefix(stream: bytes, count: int, config: Half) -> tuple[Float32, int]:
    """Decode a stream of exactly ``count`` values; return them and the stream's length in bytes."""
    return decode(stream, count, config), len(stream)
