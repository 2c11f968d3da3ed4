"""RTL layouts of wire formats, derived from :mod:`fanin.wire`.

A header is one big-endian number: its first field is the most significant. On a packet stream the first byte on
the wire has the lowest bits, so :func:`swap_bytes` converts between the two views.
"""

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Value
from amaranth.lib import data

from fanin.wire.fields import Field

MAC_WIDTHS = (8, 16, 32, 64, 128, 256, 512)


def header_layout(fields: Sequence[Field]) -> data.StructLayout:
    """Return the layout of a header as a big-endian number: the last field has the lowest bits."""
    return data.StructLayout({f.name: f.bits for f in reversed(fields)})


def swap_bytes(word: Any) -> Value:
    """Return the bytes in opposite order: big-endian number to wire order, and back."""
    bits = Value.cast(word)
    return Cat(*(bits[at : at + 8] for at in reversed(range(0, len(bits), 8))))
