"""Loading of an ONNX file, after a bound on its messages.

protobuf takes hundreds of bytes of memory for a message of two bytes, such as an empty node. The messages and
texts of a file are therefore counted before it is parsed. The bytes of weights are one field each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from onnx import ModelProto

from fanin.base.plain import read_regular

MAX_BYTES = 1 << 31  #: bytes of a file, as protobuf has them
MAX_PARTS = 1 << 18  #: messages and texts of a file; a network of 1,000 nodes has some 50,000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # kinds of fields on the wire
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def load_proto(path: Path) -> ModelProto:
    """Return the model of an ONNX file, without external data.

    Raises OSError, also for a file of more than ``MAX_BYTES`` bytes. Raises ValueError for more than
    ``MAX_PARTS`` messages and texts, and protobuf's DecodeError for a file that is no model.
    """
    data = read_regular(path, MAX_BYTES)
    try:
        parts = _count(data, 0, len(data), ModelProto.DESCRIPTOR, 0)
    except (IndexError, RecursionError):
        parts = 0  # cut off, or nested too deep: protobuf's parser refuses it there
    if parts > MAX_PARTS:
        raise ValueError(f"has more than {MAX_PARTS:,} nodes, attributes, names and other parts")
    return ModelProto.FromString(data)


def _count(data: bytes, place: int, end: int, kind: Any, parts: int) -> int:
    """Return ``parts`` and the number of messages and texts in a message, up to the first above the limit.

    - ``place``, ``end``: first byte of the message, and the byte after it.
    - ``kind``: descriptor of the message.
    """
    while place < end and parts <= MAX_PARTS:
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == _VARINT:
            _, place = _varint(data, place)
        elif wire in (_FIXED64, _FIXED32):
            place += 8 if wire == _FIXED64 else 4
        elif wire == _BYTES:
            length, place = _varint(data, place)
            field = kind.fields_by_number.get(tag >> 3)
            if field is not None and field.message_type is not None:
                parts = _count(data, place, min(place + length, end), field.message_type, parts + 1)
            elif field is not None and field.type in _TEXTS:
                parts += 1
            place += length
        else:
            raise ValueError(f"has a field of kind {wire}, which ONNX does not have")
    return parts


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of base 128, and the place after it. Raises IndexError at the end of the data."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, min(shift + 7, 63)
        if byte < 128:
            return number, place
