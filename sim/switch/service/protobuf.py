"""Protobuf's wire format at the top level of a message: divides requests, and joins answers.

A parser would make objects of a whole request, which take ten times its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedError(ValueError):
    """Bytes that are no message."""


class Field(NamedTuple):
    """A field: its number; where it, its value and the next field begin; ``size``: of the value."""

    number: int
    begin: int
    value: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.end - self.value


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 63:
            raise MalformedError("a number of more than ten bytes")


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message, in order. Raises MalformedError."""
    place, size = 0, len(data)
    try:
        while place < size:
            begin = place
            tag, place = _varint_at(data, place)
            kind = tag & 7
            value = place
            if kind == _BYTES:
                length, value = _varint_at(data, place)
                place = value + length
            elif kind == _VARINT:
                _, place = _varint_at(data, place)
            elif kind in (_FIXED32, _FIXED64):
                place += 4 if kind == _FIXED32 else 8
            else:
                raise MalformedError(f"a field of wire type {kind}")
            if place > size:
                raise MalformedError("a field that is cut off")
            yield Field(tag >> 3, begin, value, place)
    except IndexError:
        raise MalformedError("a field that is cut off") from None


def without(data: bytes, number: int) -> tuple[bytes, int, int]:
    """A message without its fields of ``number``; how many these are, and the size of the largest.

    Raises MalformedError.
    """
    kept, count, largest, begin = [], 0, 0, 0
    for field in fields(data):
        if field.number == number:
            kept.append(data[begin : field.begin])
            begin = field.end
            count += 1
            largest = max(largest, field.size)
    kept.append(data[begin:])
    return b"".join(kept), count, largest


def batches(data: bytes, number: int, *, count: int, size: int) -> Iterator[bytes]:
    """The fields of ``number`` of a message, in messages of at most ``count`` fields and ``size`` bytes.

    A field that is larger than ``size`` is a message of its own.
    """
    parts: list[bytes] = []
    total = 0
    for field in fields(data):
        if field.number != number:
            continue
        part = data[field.begin : field.end]
        if parts and (len(parts) >= count or total + len(part) > size):
            yield b"".join(parts)
            parts, total = [], 0
        parts.append(part)
        total += len(part)
    if parts:
        yield b"".join(parts)


def value(data: bytes, number: int) -> bytes | None:
    """All values of field ``number``, one after the other, which is how messages merge; None without one."""
    found = [data[field.value : field.end] for field in fields(data) if field.number == number]
    return b"".join(found) if found else None


def prefix(number: int, size: int) -> bytes:
    """Begin of a field whose value has ``size`` bytes."""
    return varint(number << 3 | _BYTES) + varint(size)


def joined(values: Iterable[bytes]) -> bytes:
    """A message whose field 1 has these values, in order."""
    return b"".join(prefix(1, len(value)) + value for value in values)


def divided(data: bytes) -> list[bytes]:
    """The values of :func:`joined`."""
    return [data[field.value : field.end] for field in fields(data)]
