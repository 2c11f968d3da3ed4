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

from fanin.base.errors import InputError
from fanin.codec.facts import BLOCKS, CONFIGS, FLOAT_BITS, CodecConfig
from fanin.codec.golden.codecs import decode_prefix

Float32 = npt.NDArray[np.float32]

MAGIC, VERSION = b"FANC", 1
_HEADER = struct.Struct("<4sBB2sQ")
HEADER_BYTES = _HEADER.size
PIECE_VALUES = 1 << 18  # values coded at a time: whole groups, and blocks that end at a byte boundary
FLOAT_BYTES = FLOAT_BITS // 8
assert PIECE_VALUES % (8 * max(BLOCKS)) == 0


@dataclass(frozen=True)
class Header:
    """Header of a file: the stream's codec with its parameters, and the number of values."""

    config: CodecConfig
    count: int

    def pack(self) -> bytes:
        """Return the 16 bytes of the header."""
        return _HEADER.pack(MAGIC, VERSION, self.config.kind.id, self.config.pack(), self.count)

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Read the 16 bytes. Raises InputError that names the defect."""
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise InputError(
                f"is not a file of fanin codec: it begins with {data[: len(MAGIC)]!r}, not {MAGIC!r}"
            )
        if len(data) < HEADER_BYTES:
            raise InputError(f"ends after {len(data)} bytes, within its header of {HEADER_BYTES}")
        _, version, codec, parameters, count = _HEADER.unpack(data[:HEADER_BYTES])
        if version != VERSION:
            raise InputError(f"has version {version} of the file format; this is version {VERSION}")
        if count == 0:
            raise InputError("holds no values")
        return cls(_unpack_parameters(codec, parameters), count)

    def check_size(self, size: int) -> None:
        """Raise InputError unless a stream of ``size`` bytes can hold the values; call before allocating
        them.
        """
        low, high = self.config.stream_limits(self.count)
        if not low <= size <= high:
            limits = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            raise InputError(f"has {size:,} bytes after its header, but {self.count:,} values take {limits}")


def _unpack_parameters(codec: int, parameters: bytes) -> CodecConfig:
    config_by_id = {config.kind.id: config for config in CONFIGS.values()}
    if codec not in config_by_id:
        names = ", ".join(f"{number} ({config.kind})" for number, config in config_by_id.items())
        raise InputError(f"has codec {codec}; known are {names}")
    try:
        return config_by_id[codec].unpack(parameters)
    except ValueError as error:
        raise InputError(f"has invalid parameters: {error}") from error


def decode_pieces(file: BinaryIO, header: Header) -> Iterator[Float32]:
    """Yield the values after a header, ``PIECE_VALUES`` at a time; ``file`` must be at the start of the stream.

    Raises InputError if the stream has too few or too many bytes for the values.
    """
    buffer = b""
    for first in range(0, header.count, PIECE_VALUES):
        count = min(PIECE_VALUES, header.count - first)
        buffer += file.read(header.config.stream_limits(count)[1] - len(buffer))
        try:
            values, consumed = decode_prefix(buffer, count, header.config)
        except InputError as error:
            raise InputError(f"the stream ends within values {first:,} to {first + count - 1:,}") from error
        buffer = buffer[consumed:]
        yield values
    if buffer or file.read(1):
        raise InputError(f"has bytes after its {header.count:,} values")
