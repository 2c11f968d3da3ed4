"""OCP Microscaling formats (MX v1.0) and their byte stream (docs/systems/codec.md).

The values of a block share a scale, a power of two, and each is sent as its quotient by that scale in a narrow
format. The scale moves the largest power of two of the block to the largest one of the format.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import SPECIAL_EXPONENT, Mx, is_stochastic
from fanin.codec.formats import SCALE_BIAS, SCALE_BITS, SCALE_NAN, Element
from fanin.codec.golden.minifloat import fields, magnitudes, numbers, to_binary32
from fanin.codec.golden.rounding import random_bytes

UInt8 = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

_MIN_NORMAL = 2.0**-126  # of binary32


def compress(values: Float32, config: Mx, seed: int = 1) -> tuple[UInt8, UInt8]:
    """Return the scale of each block and the code of each element, right-aligned.

    The last block is padded with +0. ``seed``, 1 to 2^32 - 1, is that of stochastic rounding; value i of
    ``values`` takes the sequence's bits 8i to 8i + 7.
    """
    flat = np.asarray(values, dtype=np.float32).reshape(-1)
    blocks = np.pad(flat, (0, -len(flat) % config.block)).reshape(-1, config.block)
    layout = config.element.layout
    sign, exponent, fraction = fields(blocks)
    special = exponent == SPECIAL_EXPONENT
    scales = np.maximum(exponent.max(axis=1) - layout.max_exponent, 0)
    scales[(special & (fraction > 0)).any(axis=1)] = SCALE_NAN
    random = random_bytes(blocks.size, seed).reshape(blocks.shape) if is_stochastic(config) else None
    magnitude = magnitudes(exponent, fraction, scales[:, None] - SCALE_BIAS, layout, random)
    magnitude = np.where(exponent > 0, magnitude, 0)  # subnormals are flushed
    magnitude = np.minimum(np.where(special, layout.largest, magnitude), layout.largest)
    if config.element is Element.INT8:
        codes = np.where(sign, -magnitude, magnitude)
    else:
        codes = magnitude | sign << layout.bits - 1
    codes[scales == SCALE_NAN] = 0
    return scales.astype(np.uint8), codes.reshape(-1).astype(np.uint8)


def decompress(scales: UInt8, codes: UInt8, config: Mx) -> Float32:
    """Return the values of whole blocks. Subnormal results become zeros of their sign."""
    layout = config.element.layout
    bits = layout.bits
    blocks = codes.astype(np.int64).reshape(-1, config.block)
    sign = blocks >> bits - 1
    if config.element is Element.INT8:  # the magnitude of -128 does not fit the format
        magnitude = np.where(sign, (1 << bits) - blocks, blocks).astype(np.float64)
        number = np.ldexp(magnitude, layout.min_exponent - layout.fraction)
    else:
        number = numbers(layout)[blocks & (1 << bits - 1) - 1]
    scale = scales.astype(np.int64).reshape(-1, 1)
    exact = np.ldexp(number, scale - SCALE_BIAS)
    exact = np.where(exact < _MIN_NORMAL, 0, exact)
    return to_binary32(sign, np.where(scale == SCALE_NAN, np.nan, exact)).reshape(-1)


def roundtrip(values: Float32, config: Mx, seed: int = 1) -> Float32:
    """Return the values as the receiver decodes them, in the same shape; ``seed`` as for ``compress``."""
    received = decompress(*compress(values, config, seed), config)
    return received[: np.size(values)].reshape(np.shape(values))


def encode(values: Float32, config: Mx, seed: int = 1) -> bytes:
    """Return the stream of ``values``: per block its scale, then its codes, lowest bit first, without gaps.

    ``seed`` as for ``compress``.
    """
    scales, codes = compress(values, config, seed)
    bits = np.unpackbits(codes[:, None], axis=1, count=config.code_bits, bitorder="little")
    elements = np.packbits(bits.reshape(-1, config.block * config.code_bits), axis=1, bitorder="little")
    return np.concatenate([scales[:, None], elements], axis=1).tobytes()


def decode(stream: bytes, count: int, config: Mx) -> Float32:
    """Decode the first ``count`` values of a stream. Raises InputError unless its length matches."""
    size, _ = config.stream_limits(count)
    if len(stream) != size:
        blocks = -(-count // config.block)
        raise InputError(f"compressed stream: {len(stream)} bytes, but {blocks} blocks take {size}")
    data = np.frombuffer(stream, dtype=np.uint8).reshape(-1, config.block_bits // 8)
    scales, elements = data[:, 0], data[:, SCALE_BITS // 8 :]
    bits = np.unpackbits(elements, axis=1, bitorder="little").reshape(-1, config.code_bits)
    codes = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
    return decompress(scales, codes, config)[:count]


def decode_prefix(stream: bytes, count: int, config: Mx) -> tuple[Float32, int]:
    """Decode a stream of exactly ``count`` values; return them and the stream's length in bytes."""
    return decode(stream, count, config), len(stream)
