"""Frame builder: assembles a frame beat by beat from bits of sources, with little selection logic.

As a multiplexer over beats and protocols, a reply would take four times the LUTs: many beats share half of
their bits, and constants need no source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amaranth import Cat, Const, Module, Signal, Value

from fanin.hdl.net.control.headers import WIDTH
from fanin.wire.fields import Field

#: Source of a field that equals the request's: the bits on the stream ``word``.
COPY = "word"
#: A bit: name of its source and position, or an empty name and the constant 0 or 1.
Bit = tuple[str, int]
_HALF = WIDTH // 2


def constant(bits: int) -> list[Bit]:
    """Return ``bits`` zeros."""
    return [("", 0)] * bits


def copied(bits: int) -> list[Bit]:
    """Return ``bits`` bits of the request; :func:`beats` assigns their positions."""
    return [(COPY, 0)] * bits


def header(fields: Sequence[Field], **values: int | str) -> list[Bit]:
    """Return the bits of a header in wire order; a field is a number, the name of a source, or 0 if absent."""
    bits: list[Bit] = []
    for field in fields:
        value = values.get(field.name, 0)
        for n in reversed(range(field.bits)):
            bits.append((value, n) if isinstance(value, str) else ("", value >> n & 1))
    return [bits[byte + 7 - n] for byte in range(0, len(bits), 8) for n in range(8)]


def beats(frame: Sequence[Bit]) -> list[list[Bit]]:
    """Return the beats of a frame."""
    positioned_bits = [
        (COPY, index % WIDTH) if source == COPY else (source, n) for index, (source, n) in enumerate(frame)
    ]
    assert len(positioned_bits) % WIDTH == 0
    return [positioned_bits[index : index + WIDTH] for index in range(0, len(positioned_bits), WIDTH)]


def choose(
    m: Module, enable: Any, cells: Iterable[tuple[Value, Sequence[Bit]]], sources: Mapping[str, Value]
) -> Value:
    """Return the beat of the cell whose condition held in the previous cycle of ``enable``.

    At most one condition may hold at once.
    A cell is a condition and the bits of a beat. Cells with the same bits in half a beat share a select signal
    for that half. Each bit is the OR of its source's bits, each masked by its select signal.
    """
    cells = list(cells)
    selected_bits: list[Value] = []
    for half in range(2):
        choices: dict[tuple[Bit, ...], list[Value]] = {}
        for condition, bits in cells:
            choices.setdefault(tuple(bits[_HALF * half : _HALF * (half + 1)]), []).append(condition)
        terms: list[list[Value]] = [[] for _ in range(_HALF)]
        for number, (bits, conditions) in enumerate(choices.items()):
            is_selected = Signal(name=f"half{half}_is_{number}")
            with m.If(enable):
                m.d.sync += is_selected.eq(Cat(*conditions).any())
            for column, (source, n) in zip(terms, bits, strict=True):
                if source and n < len(sources[source]):
                    column.append(is_selected & sources[source][n])
                elif not source and n:
                    column.append(is_selected)
        selected_bits += [Cat(*column).any() if column else Const(0) for column in terms]
    return Cat(*selected_bits)
