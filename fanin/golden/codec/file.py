"""Files of compressed gradients: a header of 16 bytes, then the stream
(docs/systems/codec.md, "The byte stream").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from fanin.codec import BLOCKS, FLOAT_BITS, Bfp, Codec, Inceptionn, Mode
from fanin.errors import InputError
from fanin.golden.codec import bfp, inceptionn

Float32 = npt.NDArray[np.float32]

MAGIC, VERSION = b"FANC", 1
_HEADER = struct.Struct("<4sBB2sQ")
HEADER_BYTES = _HEADER.size
PIECE = 1 << 18  # values that are coded at a time: whole groups, and blocks that end with a byte
FLOAT_BYTES = FLOAT_BITS // 8
_LARGE_GROUP = 0x80  # bit of the mode's byte
assert PIECE % (8 * max(BLOCKS)) == 0


@dataclass(frozen=True)
class Header:
    """What a file says of its stream: the codec with its parameters, and how many values there are."""

    config: Inceptionn | Bfp
    count: int

    def pack(self) -> bytes:
        """The 16 bytes."""
        codec = Codec.INCEPTIONN if isinstance(self.config, Inceptionn) else Codec.BFP
        return _HEADER.pack(MAGIC, VERSION, codec.id, _pack_parameters(self.config), self.count)

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Read the 16 bytes. Raises InputError that says what is wrong with them."""
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise InputError(f"is no file of fanin codec: it begins with {data[: len(MAGIC)]!r}, not {MAGIC!r}")
        if len(data) < HEADER_BYTES:
            raise InputError(f"ends after {len(data)} bytes, within its header of {HEADER_BYTES}")
        _, version, codec, parameters, count = _HEADER.unpack(data[:HEADER_BYTES])
        if version != VERSION:
            raise InputError(f"has version {version} of the file format; this is version {VERSION}")
        if count == 0:
            raise InputError("holds no values")
        return cls(_unpack_parameters(codec, parameters), count)

    def check_size(self, size: int) -> None:
        """Raise InputError unless a stream of ``size`` bytes can hold the values: before they take memory."""
        least, most = stream_limits(self.count, self.config)
        if not least <= size <= most:
            limits = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            raise InputError(f"has {size:,} bytes behind its header, but {self.count:,} values take {limits}")


def _pack_parameters(config: Inceptionn | Bfp) -> bytes:
    if isinstance(config, Bfp):
        return bytes([config.block, config.mantissa])
    return bytes([config.bound, config.mode | (_LARGE_GROUP if config.group == 16 else 0)])


def _unpack_parameters(codec: int, parameters: bytes) -> Inceptionn | Bfp:
    first, second = parameters
    try:
        if codec == Codec.BFP.id:
            return Bfp(block=first, mantissa=second)
        if codec == Codec.INCEPTIONN.id:
            group = 16 if second & _LARGE_GROUP else 8
            return Inceptionn(bound=first, mode=Mode(second & ~_LARGE_GROUP), group=group)
    except ValueError as error:
        raise InputError(f"has parameters that no codec has: {error}") from error
    raise InputError(
        f"has codec {codec}; known are {Codec.INCEPTIONN.id} (INCEPTIONN) and {Codec.BFP.id} (BFP)"
    )


def stream_limits(count: int, config: Inceptionn | Bfp) -> tuple[int, int]:
    """Least and most bytes of the stream of ``count`` values; a BFP stream has but one size."""
    if isinstance(config, Bfp):
        size = -(-(-(-count // config.block) * config.block_bits) // 8)
        return size, size
    groups = -(-count // config.group)
    return groups * config.tag_bytes, groups * config.max_group_bytes


def encode(values: Float32, config: Inceptionn | Bfp) -> bytes:
    """The stream of ``values``, without a header."""
    if isinstance(config, Bfp):
        return bfp.encode(values, config)
    return inceptionn.encode(values, config)


def decode(stream: bytes, count: int, config: Inceptionn | Bfp) -> Float32:
    """The ``count`` values of a stream without a header. Raises InputError unless its length is theirs."""
    if isinstance(config, Bfp):
        return bfp.decode(stream, count, config)
    return inceptionn.decode(stream, count, config)


def decode_pieces(file: BinaryIO, header: Header) -> Iterator[Float32]:
    """The values behind a header, ``PIECE`` at a time; ``file`` stands at the stream's begin.

    Raises InputError when the stream ends before them or goes on behind them.
    """
    rest = b""
    for first in range(0, header.count, PIECE):
        count = min(PIECE, header.count - first)
        rest += file.read(stream_limits(count, header.config)[1] - len(rest))
        try:
            values, used = _decode_prefix(rest, count, header.config)
        except InputError as error:
            raise InputError(f"its stream ends within values {first:,} to {first + count - 1:,}") from error
        rest = rest[used:]
        yield values
    if rest or file.read(1):
        raise InputError(f"has bytes behind its {header.count:,} values")


def _decode_prefix(stream: bytes, count: int, config: Inceptionn | Bfp) -> tuple[Float32, int]:
    if isinstance(config, Bfp):
        return bfp.decode(stream, count, config), len(stream)
    return inceptionn.decode_prefix(stream, count, config)
