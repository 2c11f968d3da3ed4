"""INCEPTIONN's error-bounded codec (algorithms 2 and 3) in both modes, and its byte stream
(docs/systems/codec.md).

A value is sent as a tag of two bits and 0, 8, 16 or 32 bits. The 8- and 16-bit forms are fixed point: the sign,
and the first 7 or 15 fraction bits of the magnitude, which is below 1. The 32-bit form is the float itself, for
magnitudes from 1 on. The encoder takes the shortest form that the error bound 2^-b allows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import (
    EXPONENT_BIAS,
    FRACTION_BITS,
    MAX_BOUND,
    SHORT_FRACTION,
    TAG_BITS,
    TAG_BYTES,
    Inceptionn,
    Mode,
    Tag,
)

UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]

_SIZES = np.array([TAG_BYTES[tag] for tag in Tag], dtype=np.int64)
_VALUE_BYTES = 4
_SHORT_FRACTIONS = (SHORT_FRACTION[Tag.BITS8], SHORT_FRACTION[Tag.BITS16])
_MAX_SHIFT = (
    FRACTION_BITS + 2
)  # enough to shift out all FRACTION_BITS + 1 bits of a significand; larger: the same
_BYTES_OF_TAGS = [  # bytes of the values whose tags are in a byte
    sum(TAG_BYTES[Tag((byte >> k) & 3)] for k in range(0, 8, TAG_BITS)) for byte in range(256)
]


def compress(values: Float32, config: Inceptionn) -> tuple[UInt8, UInt32]:
    """Return the tag of each value and, right-aligned, the 0, 8, 16 or 32 bits after it."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(-1)
    exponent = ((bits >> FRACTION_BITS) & 0xFF).astype(np.int64)
    shift = EXPONENT_BIAS - exponent  # |f| is in [2^-shift, 2^(1 - shift))
    leading_one = 1 << FRACTION_BITS  # not stored in a float
    significand = (leading_one | (bits & (leading_one - 1))).astype(np.int64)  # |f| in units of 2^-(23 + shift)
    fraction = significand >> np.clip(shift, 0, _MAX_SHIFT)  # |f| in units of 2^-23, truncated
    tags = _published_tags(shift, config.bound)
    if config.mode is Mode.STRICT:
        tags = _strict_tags(shift, significand, config.bound)
    sign = (bits >> 31).astype(np.int64)
    words = np.zeros(bits.shape, dtype=np.int64)
    for tag, fraction_bits in SHORT_FRACTION.items():
        short_form = (sign << fraction_bits) | (fraction >> (FRACTION_BITS - fraction_bits))
        words = np.where(tags == tag, short_form, words)
    words = np.where(tags == Tag.RAW, bits, words)
    return tags.astype(np.uint8), words.astype(np.uint32)


def _published_tags(shift: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.int64]:
    """Return the tags that algorithm 2 chooses, with e = 127 − shift and error_bound = 127 − bound."""
    tags = np.full(shift.shape, Tag.BITS8, dtype=np.int64)
    tags[shift <= bound // 2] = Tag.BITS16  # e >= error_bound + ceil(bound / 2)
    tags[shift > bound] = Tag.ZERO
    tags[shift <= 0] = Tag.RAW
    return tags


def _strict_tags(
    shift: npt.NDArray[np.int64], significand: npt.NDArray[np.int64], bound: int
) -> npt.NDArray[np.int64]:
    """Return the shortest forms with an error of at most 2^-bound.

    Errors are exact integers in one unit, 2^-(23 + ``finest``) = 2^-39, in which every |f| ≥ 2^-16 is a whole
    number. A smaller |f| is below every bound, so its form is zero.
    """
    finest = MAX_BOUND + 1
    unit_bits = FRACTION_BITS + finest
    exact = significand << (finest - np.clip(shift, 0, finest))
    limit = 1 << (unit_bits - bound)
    tags = np.full(shift.shape, Tag.BITS16, dtype=np.int64)
    lost = exact & ((1 << (unit_bits - SHORT_FRACTION[Tag.BITS8])) - 1)  # error of the 8-bit form
    tags[lost <= limit] = Tag.BITS8
    tags[(exact <= limit) | (shift > finest)] = Tag.ZERO
    tags[shift <= 0] = Tag.RAW
    return tags


def decompress(tags: UInt8, words: UInt32) -> Float32:
    """Decode values by algorithm 3; a short form whose magnitude is 0 is +0, whatever its sign."""
    word = words.astype(np.int64)
    bits = np.where(tags == Tag.RAW, word, 0)
    for tag, fraction_bits in SHORT_FRACTION.items():
        magnitude = word & ((1 << fraction_bits) - 1)
        # Number of bits from the leading one down to bit 0; 0 without a one.
        length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
        exponent = EXPONENT_BIAS - (fraction_bits + 1 - length)
        normalized = magnitude << (
            FRACTION_BITS + 1 - np.maximum(length, 1)
        )  # leading one at bit FRACTION_BITS
        fraction = normalized & ((1 << FRACTION_BITS) - 1)
        value = ((word >> fraction_bits) << 31) | (exponent << FRACTION_BITS) | fraction
        bits = np.where((tags == tag) & (magnitude > 0), value, bits)
    return bits.astype(np.uint32).view(np.float32)


def roundtrip(values: Float32, config: Inceptionn) -> Float32:
    """Return the values as the receiver decodes them, in the same shape."""
    return deliver(values, config)[0]


def deliver(values: Float32, config: Inceptionn) -> tuple[Float32, UInt8]:
    """Return the values as the receiver decodes them, and the tag of each, both in the shape of ``values``.

    The result equals ``decompress`` of ``compress``, without bit patterns in between, for trainings. The
    function implements the rules of ``_published_tags`` and ``_strict_tags`` again, in binary32 arithmetic. A
    short form is f truncated after its fraction bits. Scaling by a power of two and the difference ``values -
    short`` are exact in binary32. Tests compare the two.
    """
    values = np.asarray(values, dtype=np.float32)
    magnitude, bound = np.abs(values), np.float32(2.0**-config.bound)
    with np.errstate(all="ignore"):  # overflow and NaN are handled as values
        short, long = (
            np.trunc(values * np.float32(1 << fraction_bits)) / np.float32(1 << fraction_bits)
            for fraction_bits in _SHORT_FRACTIONS
        )
        if config.mode is Mode.STRICT:
            is_short, is_zero = np.abs(values - short) <= bound, magnitude <= bound  # _strict_tags
        else:  # _published_tags: shift > n means magnitude < 2^-n
            is_short, is_zero = magnitude < np.float32(2.0 ** -(config.bound // 2)), magnitude < bound
        received = np.where(is_short, short, long) * ~is_zero
    tags = np.where(is_short, np.uint8(Tag.BITS8), np.uint8(Tag.BITS16))
    tags[is_zero] = Tag.ZERO
    is_raw = ~(magnitude < 1)
    tags[is_raw] = Tag.RAW
    return np.where(is_raw, values, received + np.float32(0)), tags  # adding 0 turns -0 into +0


def encode(values: Float32, config: Inceptionn) -> bytes:
    """Return the byte stream of ``values``: per group its tags, first value lowest, then its values' bytes.

    The last group is padded with zeros, which take no bytes except their tags.
    """
    tags, words = compress(values, config)
    fill = -len(tags) % config.group
    tags, words = np.pad(tags, (0, fill)), np.pad(words, (0, fill))
    tag_bytes = _pack_tags(tags, config)
    sizes = _SIZES[tags].reshape(-1, config.group)
    group_bytes = sizes.sum(axis=1) + config.tag_bytes
    starts = np.cumsum(group_bytes) - group_bytes
    stream = np.zeros(int(group_bytes.sum()), dtype=np.uint8)
    for byte in range(config.tag_bytes):
        stream[starts + byte] = tag_bytes[:, byte]
    positions = (starts[:, None] + config.tag_bytes + np.cumsum(sizes, axis=1) - sizes).reshape(-1)
    for byte in range(_VALUE_BYTES):
        has_byte = sizes.reshape(-1) > byte
        stream[positions[has_byte] + byte] = (words[has_byte] >> (8 * byte)) & 0xFF
    return stream.tobytes()


def _pack_tags(tags: UInt8, config: Inceptionn) -> UInt8:
    per_byte = 8 // TAG_BITS
    quads = tags.reshape(-1, config.tag_bytes, per_byte)
    return (quads << (TAG_BITS * np.arange(per_byte))).sum(axis=2).astype(np.uint8)


def decode(stream: bytes, count: int, config: Inceptionn) -> Float32:
    """Decode a byte stream of exactly ``count`` values.

    Raises InputError if the stream has too few bytes, or bytes after the last group.
    """
    values, end = decode_prefix(stream, count, config)
    if end < len(stream):
        groups = -(-count // config.group)
        raise InputError(f"compressed stream: {len(stream) - end} bytes after its {groups} groups")
    return values


def decode_prefix(stream: bytes, count: int, config: Inceptionn) -> tuple[Float32, int]:
    """Decode the first ``count`` values of a byte stream; return them and the bytes of their groups.

    More bytes may follow. Raises InputError if the stream has too few.
    """
    data = np.frombuffer(stream, dtype=np.uint8)
    groups = -(-count // config.group)
    starts, end = _group_starts(data, groups, config)
    tag_bytes = data[starts[:, None] + np.arange(config.tag_bytes)]
    shifts = TAG_BITS * np.arange(8 // TAG_BITS)
    tags = ((tag_bytes[:, :, None] >> shifts) & ((1 << TAG_BITS) - 1)).reshape(groups, config.group)
    sizes = _SIZES[tags]
    positions = (starts[:, None] + config.tag_bytes + np.cumsum(sizes, axis=1) - sizes).reshape(-1)
    words = np.zeros(groups * config.group, dtype=np.int64)
    for byte in range(_VALUE_BYTES):
        has_byte = sizes.reshape(-1) > byte
        words[has_byte] |= data[positions[has_byte] + byte].astype(np.int64) << (8 * byte)
    return decompress(tags.reshape(-1).astype(np.uint8), words.astype(np.uint32))[:count], end


def _group_starts(data: UInt8, groups: int, config: Inceptionn) -> tuple[npt.NDArray[np.int64], int]:
    """Return the start of each group and the end of the last; each group's tags give its length."""
    stream, starts, position = data.tobytes(), [], 0
    for group in range(groups):
        if position + config.tag_bytes > len(stream):
            raise InputError(f"compressed stream: it ends in group {group} of {groups}")
        starts.append(position)
        tags = stream[position : position + config.tag_bytes]
        position += config.tag_bytes + sum(_BYTES_OF_TAGS[byte] for byte in tags)
    if position > len(stream):
        raise InputError(f"compressed stream: it ends in group {groups - 1} of {groups}")
    return np.array(starts, dtype=np.int64), position
