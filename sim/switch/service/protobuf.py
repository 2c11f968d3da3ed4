"""Protobuf's wire format at the top level of a message: division of requests, and joining of answers.

A parser would make objects of a whole request, which take ten times its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fanin.sim.switch.service.link import MAX_PART_BYTES

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedError(ValueError):
    """Bytes that are not a protobuf message."""


class LimitError(ValueError):
    """A message over a limit; the text names both."""


class Field(NamedTuple):
    """A field: its number, and the offsets of the field, of its value and of the next field."""

    number: int
    begin: int
    value: int
    end: int

    @property
    def size(self) -> int:
        """Size of the value in bytes."""
        return self.end - self.value


def varint(number: int) -> bytes:
    """Return a number in protobuf's variable-length encoding."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _varint_at(data: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset
        shift += 7
        if shift > 63:
            raise MalformedError("a number of more than ten bytes")


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message, in order. Raises MalformedError."""
    offset, size = 0, len(data)
    try:
        while offset < size:
            begin = offset
            tag, offset = _varint_at(data, offset)
            kind = tag & 7
            value = offset
            if kind == _BYTES:
                length, value = _varint_at(data, offset)
                offset = value + length
            elif kind == _VARINT:
                _, offset = _varint_at(data, offset)
            elif kind in (_FIXED32, _FIXED64):
                offset += 4 if kind == _FIXED32 else 8
            else:
                raise MalformedError(f"a field of wire type {kind}")
            if offset > size:
                raise MalformedError("a field that is cut off")
            yield Field(tag >> 3, begin, value, offset)
    except IndexError:
        raise MalformedError("a field that is cut off") from None


def remove_fields(data: bytes, number: int, noun: str, *, count: int, size: int | None = None) -> bytes:
    """Return a message without its fields of ``number``. Raises MalformedError and, at once, LimitError.

    - ``noun``: what these fields are, in errors.
    - ``count``: maximum number of these fields.
    - ``size``: maximum bytes of one of them; None: no limit.

    The remainder has at most ``MAX_PART_BYTES`` bytes.
    """
    remainder, found = bytearray(), 0
    for field in fields(data):
        if field.number == number:
            found += 1
            if found > count:
                raise LimitError(f"more {noun} in a request than the limit, {count}")
            if size is not None and field.size > size:
                raise LimitError(f"one of the {noun} has {field.size} bytes; the limit is {size}")
        else:
            if len(remainder) + field.end - field.begin > MAX_PART_BYTES:
                raise LimitError(
                    f"a request without its {noun} has more bytes than the limit, {MAX_PART_BYTES}"
                )
            remainder += data[field.begin : field.end]
    return bytes(remainder)


def batches(data: bytes, number: int, *, count: int, size: int) -> Iterator[bytes]:
    """Yield the fields of ``number`` in messages of at most ``count`` fields and ``size`` bytes.

    A field larger than ``size`` becomes a separate message.
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


def field_value(data: bytes, number: int, *, count: int) -> bytes | None:
    """Return all values of field ``number``, concatenated, as messages merge; None without one.

    Raises MalformedError, and LimitError at once for a message of more than ``count`` fields.
    """
    values = []
    for found, field in enumerate(fields(data), 1):
        if found > count:
            raise LimitError(f"more fields in a message than the limit, {count}")
        if field.number == number:
            values.append(data[field.value : field.end])
    return b"".join(values) if values else None


def prefix(number: int, size: int) -> bytes:
    """Return the first bytes of a field whose value has ``size`` bytes."""
    return varint(number << 3 | _BYTES) + varint(size)


def join(values: Iterable[bytes]) -> bytes:
    """Return a message whose field 1 has these values, in order."""
    return b"".join(prefix(1, len(value)) + value for value in values)


def split(data: bytes) -> list[bytes]:
    """Return the values of a message made by :func:`join`."""
    return [data[field.value : field.end] for field in fields(data)]
