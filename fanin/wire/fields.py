"""Headers as sequences of fields: how each is declared, packed and unpacked, in network byte order."""

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
    """Length of a header in bytes."""
    return sum(f.bits for f in fields) // 8


def field_bits(fields: Sequence[Field], name: str) -> int:
    """Width of a header's field."""
    return next(f.bits for f in fields if f.name == name)


def pack_fields(fields: Sequence[Field], values: dict[str, int]) -> bytes:
    """Pack one header; fields that ``values`` does not name are 0."""
    word = 0
    for f in fields:
        value = values.get(f.name, 0)
        if not 0 <= value < 1 << f.bits:
            raise ValueError(f"{f.name} must fit {f.bits} bits, not {value!r}")
        word = word << f.bits | value
    return word.to_bytes(byte_length(fields), "big")


def unpack_fields(fields: Sequence[Field], data: bytes) -> dict[str, int]:
    """Unpack one header from the start of ``data``, which must hold at least its length."""
    size = byte_length(fields)
    if len(data) < size:
        raise ValueError(f"header needs {size} bytes, not {len(data)}")
    word = int.from_bytes(data[:size], "big")
    out = {}
    for f in reversed(fields):
        out[f.name] = word & ((1 << f.bits) - 1)
        word >>= f.bits
    return out
