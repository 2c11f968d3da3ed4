"""Shifters that join the bytes of a group without gaps, and separate them again.

A group is its tags, then its values' bytes, 0, 1, 2 or 4 of each. The begin of a value's bytes depends on the
tags before it. Four values, a quad, are joined or separated in one cycle. A table gives the bytes of up to
three values by their tags, which suffices, since the first value needs no shift. Rows of more values are
joined, or halved, in pairs, one cycle for each doubling. In each pair one row is shifted by the bytes of the
other.

::

    values      v0  v1  v2  v3      v4  v5  v6  v7
                 └───┴─┬─┴───┘       └───┴─┬─┴───┘        cycle 1: each value shifted by the bytes before it
    quads       tags,v0…v3  18 bytes     v4…v7  16 bytes
                       └────────┬──────────┘              cycle 2: the second quad shifted by those of the first
    group                tags,v0…v7  34 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import or_

from amaranth import Cat, Const, Value

from fanin.codec.facts import FLOAT_BITS, TAG_BITS, TAG_BYTES, Tag
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.arith.select import lookup

QUAD = 4  # values joined or separated in one cycle


def shifter_latency(group: int) -> int:
    """Return the cycles of :func:`join` and of :func:`separate`: 2 for 8 values, 3 for 16."""
    return group.bit_length() - 2


def byte_count(tags: Value, extra: int = 0) -> Value:
    """Return the bytes of the values with these tags, plus ``extra``.

    Up to three tags use a table, whose six input bits fit a LUT; more tags use the sum of tables of two.
    """
    count = len(tags) // TAG_BITS
    if count > 3:
        first_part, *other_parts = _slices(tags, 2 * TAG_BITS)
        return sum((byte_count(part) for part in other_parts), byte_count(first_part, extra))
    sizes = [TAG_BYTES[Tag(tag)] for tag in range(1 << TAG_BITS)]
    return lookup([extra + sum(combination) for combination in product(sizes, repeat=count)], tags)


def join(pipeline: Pipeline, tags: Value, values: Sequence[Value]) -> tuple[Value, Value]:
    """Return the bytes of a group of 8 or 16 values without gaps, its tags first, and their number.

    ``values`` must be zero beyond the bits of their tags. Latency: :func:`shifter_latency`.
    """
    rows, counts = [], []  # bytes of each row, and how many of them are valid
    for n, quad_tags in enumerate(_slices(tags, QUAD * TAG_BITS)):
        head = tags if n == 0 else tags[:0]
        rows.append(Cat(head, _concat_quad(quad_tags, values[QUAD * n :][:QUAD])))
        counts.append(byte_count(quad_tags, len(head) // 8))
    while True:
        size = len(values) // len(rows)
        rows = [pipeline.register(row, name=f"row{size}_{n}") for n, row in enumerate(rows)]
        counts = [pipeline.register(count, name=f"count{size}_{n}") for n, count in enumerate(counts)]
        if len(rows) == 1:
            return rows[0], counts[0]
        rows = [
            _concat(low, high, count)
            for low, high, count in zip(rows[::2], rows[1::2], counts[::2], strict=True)
        ]
        counts = [low + high for low, high in zip(counts[::2], counts[1::2], strict=True)]


def separate(pipeline: Pipeline, tags: Value, row: Value, low_bytes: Value) -> tuple[Value, list[Value]]:
    """Return the tags, delayed like the values, and the values of ``row``, a group's bytes after its tags.

    ``low_bytes`` are the bytes of the row's lower half of values. A value's bits beyond those of its tag are
    undefined. Latency: :func:`shifter_latency`.
    """
    rows, low_counts = [row], [low_bytes]  # bytes of each row, and bytes of its lower half of values
    while len(rows[0]) > QUAD * FLOAT_BITS:
        half = len(rows[0]) // 2
        # The low and the high half of each row.
        halves = [
            (row[:half], _shifted_down(row, count)[:half]) for row, count in zip(rows, low_counts, strict=True)
        ]
        rows = [pipeline.register(part, name=f"part{half}_{n}") for n, part in enumerate(sum(halves, ()))]
        low_tags = [part[: len(part) // 2] for part in _slices(tags, len(tags) // len(rows))]
        low_counts = [
            pipeline.register(byte_count(part), name=f"low{half}_{n}") for n, part in enumerate(low_tags)
        ]
        tags = pipeline.register(tags, name=f"tags{half}")
    values: list[Value] = []
    for quad, quad_tags in zip(rows, _slices(tags, QUAD * TAG_BITS), strict=True):
        for n in range(QUAD):
            value = _shifted_down(quad, byte_count(quad_tags[: TAG_BITS * n]))[:FLOAT_BITS]
            values.append(pipeline.register(value, name=f"value{len(values)}"))
    return pipeline.register(tags, name="value_tags"), values


def _concat_quad(tags: Value, values: Sequence[Value]) -> Value:
    """Return the bytes of four values without gaps: each is shifted by the bytes of the values before it."""
    rows = (_shifted_up(value, byte_count(tags[: TAG_BITS * n])) for n, value in enumerate(values))
    return reduce(or_, rows)[: QUAD * FLOAT_BITS]


def _concat(low: Value, high: Value, low_bytes: Value) -> Value:
    """Return the bytes of ``low``, which is zero beyond ``low_bytes``, then those of ``high``."""
    return (low | _shifted_up(high, low_bytes))[: len(low) + len(high)]


def _shifted_up(value: Value, count: Value) -> Value:
    return value << Cat(Const(0, 3), count)


def _shifted_down(value: Value, count: Value) -> Value:
    return value >> Cat(Const(0, 3), count)


def _slices(value: Value, width: int) -> list[Value]:
    """Return ``value`` in parts of ``width`` bits, from the lowest on."""
    return [value[at : at + width] for at in range(0, len(value), width)]
