"""Block floating point (AI Smart NIC, section IV-B) and its bit stream (docs/systems/codec.md).

A block's values share the exponent of the largest of them. Each value is sent as its sign and a magnitude of
``mantissa`` bits: its significand, shifted right by the distance of its own exponent from the shared one. A
block with an infinity or a NaN has a special exponent code, for which the upper half of the magnitudes encodes
infinity and NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT, Bfp
from fanin.codec.golden.rounding import round_nearest

UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]

_MAX_DISTANCE = FRACTION_BITS + 2  # a leading one shifted by more rounds to zero


def compress(values: Float32, config: Bfp) -> tuple[UInt8, UInt32]:
    """Return the exponent code of each block and the code of each value (sign above the magnitude).

    The last block is padded with zeros. A block exponent outside the codec's range is clamped to the range:
    small values lose bits, and large ones become the largest value.
    """
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    bits = np.pad(flat, (0, -len(flat) % config.block)).view(np.uint32).reshape(-1, config.block)
    exponent = (bits >> FRACTION_BITS & 0xFF).astype(np.int64)
    fraction = (bits & (1 << FRACTION_BITS) - 1).astype(np.int64)
    largest = exponent.max(axis=1, keepdims=True) if bits.size else exponent[:, :1]
    finite = np.clip(largest, config.lowest, config.highest)
    shared = np.where(largest == SPECIAL_EXPONENT, SPECIAL_EXPONENT, finite)
    significand = np.where(exponent > 0, 1 << FRACTION_BITS | fraction, 0)  # subnormals are flushed
    # -1 for values above the range: that is enough for them to saturate.
    distance = np.clip(shared - exponent, -1, _MAX_DISTANCE)
    magnitude = round_nearest(significand, FRACTION_BITS + 1 - config.mantissa + distance)
    infinity = 1 << config.mantissa - 1
    limit = np.where(largest == SPECIAL_EXPONENT, infinity - 1, 2 * infinity - 1)
    magnitude = np.minimum(magnitude, limit)
    special = exponent == SPECIAL_EXPONENT
    magnitude = np.where(special, np.where(fraction == 0, infinity, 2 * infinity - 1), magnitude)
    sign = np.where(magnitude > 0, bits >> 31, 0).astype(np.int64)
    codes = sign << config.mantissa | magnitude
    exponent_codes = np.where(largest == SPECIAL_EXPONENT, config.special, finite - config.lowest)
    return exponent_codes.reshape(-1).astype(np.uint8), codes.reshape(-1).astype(np.uint32)


def decompress(exponents: UInt8, codes: UInt32, config: Bfp) -> Float32:
    """Return the values of whole blocks from the codes of exponents and values.

    Subnormal results become +0, like every zero.
    """
    exponent_codes = exponents.astype(np.int64).reshape(-1, 1)
    shared = np.where(exponent_codes == config.special, SPECIAL_EXPONENT, exponent_codes + config.lowest)
    code = codes.astype(np.int64).reshape(-1, config.block)
    magnitude, sign = code & (1 << config.mantissa) - 1, code >> config.mantissa
    # Bits from the leading one on; 0 without a one.
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    exponent = shared - config.mantissa + length
    fraction = (magnitude << FRACTION_BITS + 1 - np.maximum(length, 1)) & (1 << FRACTION_BITS) - 1
    bits = sign << 31 | exponent << FRACTION_BITS | fraction
    bits = np.where((magnitude == 0) | (exponent <= 0), 0, bits)
    infinity = 1 << config.mantissa - 1
    special = shared == SPECIAL_EXPONENT
    bits = np.where(special & (magnitude > infinity), QUIET_NAN, bits)  # == infinity: exponent 255, fraction 0
    return bits.reshape(-1).astype(np.uint32).view(np.float32)


def roundtrip(values: Float32, config: Bfp) -> Float32:
    """Return the values as the receiver decodes them, in the same shape."""
    return decompress(*compress(values, config), config)[: np.size(values)].reshape(np.shape(values))


def encode(values: Float32, config: Bfp) -> bytes:
    """Return the bit stream of ``values``, lowest bit of a byte first: per block its exponent, then its
    codes.
    """
    exponents, codes = compress(values, config)
    blocks = np.concatenate(
        [
            _bits(exponents.astype(np.uint32).reshape(-1, 1), config.exponent),
            _bits(codes.reshape(-1, config.block), config.code_bits),
        ],
        axis=1,
    )
    return np.packbits(blocks.reshape(-1), bitorder="little").tobytes()


def _bits(numbers: UInt32, width: int) -> UInt8:
    bits = numbers[:, :, None] >> np.arange(width, dtype=np.uint32) & 1
    return bits.reshape(len(numbers), numbers.shape[1] * width).astype(np.uint8)


def decode(stream: bytes, count: int, config: Bfp) -> Float32:
    """Decode the first ``count`` values of a bit stream. Raises InputError unless its length matches."""
    blocks = -(-count // config.block)
    size = -(-blocks * config.block_bits // 8)
    if len(stream) != size:
        raise InputError(f"compressed stream: {len(stream)} bytes, but {blocks} blocks take {size}")
    flat = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), bitorder="little")
    bits = flat[: blocks * config.block_bits].reshape(blocks, config.block_bits).astype(np.uint32)
    exponents = (bits[:, : config.exponent] << np.arange(config.exponent, dtype=np.uint32)).sum(axis=1)
    parts = bits[:, config.exponent :].reshape(blocks, config.block, config.code_bits)
    codes = (parts << np.arange(config.code_bits, dtype=np.uint32)).sum(axis=2)
    values = decompress(exponents.astype(np.uint8), codes.astype(np.uint32), config)
    return values[:count]


def decode_prefix(stream: bytes, count: int, config: Bfp) -> tuple[Float32, int]:
    """Decode a bit stream of exactly ``count`` values; return them and the stream's length in bytes."""
    return decode(stream, count, config), len(stream)
