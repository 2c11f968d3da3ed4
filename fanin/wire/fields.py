"""Headers as sequences of fields in network byte order: declaration, packing and unpacking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One header field: ``bits`` wide, most significant bit first on the wire."""

    name: str
    bits: int
    meaning: str


def byte_length(fields: Sequence[Field]) -> int:
    """Return the length of a header in bytes."""
    return sum(f.bits for f in fields) // 8


def field_bits(fields: Sequence[Field], name: str) -> int:
    """Return the width of a header's field in bits."""
    return next(f.bits for f in fields if f.name == name)


def pack_fields(fields: Sequence[Field], values: dict[str, int]) -> bytes:
    """Pack a header; fields missing in ``values`` are 0."""
    word = 0
    for f in fields:
        value = values.get(f.name, 0)
        if not 0 <= value < 1 << f.bits:
            raise ValueError(f"{f.name} must fit {f.bits} bits, not {value!r}")
        word = word << f.bits | value
    return word.to_bytes(byte_length(fields), "big")


def unpack_fields(fields: Sequence[Field], data: bytes) -> dict[str, int]:
    """Unpack a header at the start of ``data``. Raises ValueError if ``data`` is shorter."""
    size = byte_length(fields)
    if len(data) < size:
        raise ValueError(f"header needs {size} bytes, not {len(data)}")
    word = int.from_bytes(data[:size], "big")
    values = {}
    for f in reversed(fields):
        values[f.name] = word & ((1 << f.bits) - 1)
        word >>= f.bits
    return values
