"""Pieces of 0 to 4 bytes joined without gaps, and cut apart again: two binary trees of byte shifters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from amaranth import Cat, Const, Mux, Value

from fanin.codec import FLOAT_BITS, TAG_BITS, TAG_BYTES, Tag
from fanin.hdl.arith.delay import Pipeline

QUAD = 4  # pieces that are joined, or cut apart, in one cycle
QUAD_BITS = QUAD * FLOAT_BITS


def shifter_latency(group: int) -> int:
    """Cycles of :func:`join` and of :func:`cut`: 2 for 8 values, 3 for 16."""
    return group.bit_length() - 2


def by_size(tag: Value, moved: Callable[[int], Value]) -> Value:
    """``moved`` by the bytes behind a tag: one 4:1 multiplexer."""
    by = [moved(8 * TAG_BYTES[form]) for form in Tag]
    return Mux(tag[1], Mux(tag[0], by[3], by[2]), Mux(tag[0], by[1], by[0]))


def bytes_of(tags: Value, extra: int = 0, *, judged: int = 2) -> Value:
    """Bytes behind tags, and ``extra`` more: ``judged`` tags at a time by table, then added."""
    *others, last = _words(tags, judged * TAG_BITS)
    return sum((_sizes(part, 0) for part in others), _sizes(last, extra))


def _sizes(tags: Value, extra: int) -> Value:
    """The table: a LUT for each bit, of up to three tags."""
    sizes = [
        extra + sum(TAG_BYTES[Tag(word >> at & 3)] for at in range(0, len(tags), TAG_BITS))
        for word in range(1 << len(tags))
    ]
    width = max(sizes).bit_length()
    return Cat(Cat(Const(size >> bit & 1) for size in sizes).bit_select(tags, 1) for bit in range(width))


def picked(choices: Sequence[Value], index: Value) -> Value:
    """The choice that ``index`` says: 4:1 multiplexers. Of four, those that are not there are never said."""
    for low in range(0, len(index), 2):
        choices = [_picked(choices[at : at + 4], index[low : low + 2]) for at in range(0, len(choices), 4)]
    return choices[0]


def _picked(choices: Sequence[Value], index: Value) -> Value:
    low = Mux(index[0], choices[1], choices[0]) if len(choices) > 1 else choices[0]
    if len(choices) < 3:
        return low
    return Mux(index[1], Mux(index[0], choices[3], choices[2]) if len(choices) > 3 else choices[2], low)


def moved_up(value: Value, places: Value, most: int) -> Value:
    """``value``, ``places`` bytes further up, ``most`` at the most: the small steps first."""
    for low in range(0, len(places), 2):
        steps = min(4, (most >> low) + 1)
        value = _picked([value << (8 * n << low) for n in range(steps)], places[low : low + 2])
    return value


def moved_down(value: Value, places: Value, size: int, *, most: int, unit: int = 8) -> Value:
    """``size`` bits of ``value``, from ``places`` bytes up, ``most`` at the most: the large steps first.

    ``unit``: bits of a place, where that is not a byte.
    """
    for low in reversed(range(0, len(places), 2)):
        kept = size + unit * ((1 << low) - 1)  # what later steps can still reach
        steps = min(4, (most >> low) + 1)
        value = _picked([value[unit * n << low :][:kept] for n in range(steps)], places[low : low + 2])
    return value


def moved_down_fast(value: Value, places: Value, size: int, *, most: int, unit: int = 8) -> Value:
    """The same by the ones of a decoded number: larger, in two LUTs where a memory leaves no time for more."""
    return reduce(or_, (Mux(places == step, value[unit * step :][:size], 0) for step in range(most + 1)))


def _pair(low: Value, high: Value, tag: Value) -> Value:
    """The bytes of ``low``, which are as many as ``tag`` says, then those of ``high``."""
    return (low | by_size(tag, lambda bits: high << bits))[: 2 * FLOAT_BITS]


def _joined(low: Value, high: Value, low_bytes: Value) -> Value:
    """The bytes of ``low``, which are zero from ``low_bytes`` on, then those of ``high``."""
    return (low | moved_up(high, low_bytes, len(low) // 8))[: 2 * len(low)]


def join(pipeline: Pipeline, tags: Value, values: Sequence[Value], *, extra: int) -> tuple[Value, Value]:
    """The bytes of 8 or 16 values in a row, and how many, plus ``extra``.

    ``values`` are zero beyond what their tags say. Latency: :func:`shifter_latency`.
    """
    rows = [_pair(values[n], values[n + 1], tags.word_select(n, TAG_BITS)) for n in range(0, len(values), 2)]
    pair_tags = _words(tags, 2 * TAG_BITS)
    # the last count moves nothing, so that it may have something added
    counts = [bytes_of(pair) for pair in pair_tags[:-1]] + [bytes_of(pair_tags[-1], extra)]
    while len(rows) > 1:
        name = f"row{len(rows) // 2}"
        pairs = range(0, len(rows), 2)
        rows = [
            pipeline.register(_joined(rows[n], rows[n + 1], counts[n]), name=f"{name}_{n // 2}") for n in pairs
        ]
        counts = [pipeline.register(counts[n] + counts[n + 1], name=f"{name}_count{n // 2}") for n in pairs]
    return rows[0], counts[0]


def cut(pipeline: Pipeline, tags: Value, row: Value, low_bytes: Value) -> tuple[Value, list[Value]]:
    """The tags and the values of a row of bytes; ``low_bytes`` is what the lower half of the values takes.

    A value's bits beyond what its tag says are any. Latency: :func:`shifter_latency`.
    """
    rows, lows = [row], [low_bytes]
    while len(rows[0]) > QUAD_BITS:
        size = len(rows[0]) // 2
        halves = [
            half
            for row, low in zip(rows, lows, strict=True)
            for half in (row[:size], moved_down(row, low, size, most=size // 8))
        ]
        rows = [pipeline.register(half, name=f"part{len(halves)}_{n}") for n, half in enumerate(halves)]
        sums = [bytes_of(part[: len(part) // 2]) for part in _words(tags, len(tags) // len(rows))]
        lows = [pipeline.register(low, name=f"low{len(halves)}_{n}") for n, low in enumerate(sums)]
        tags = pipeline.register(tags, name=f"tags{len(rows)}")
    values = [
        value
        for row, quad, low in zip(rows, _words(tags, QUAD * TAG_BITS), lows, strict=True)
        for value in _quad(row, quad, low)
    ]
    return pipeline.register(tags, name="value_tags"), [
        pipeline.register(value, name=f"value{n}") for n, value in enumerate(values)
    ]


def _quad(row: Value, tags: Value, low_bytes: Value) -> list[Value]:
    """The values of a row of four, of which two take ``low_bytes``."""
    size = 2 * FLOAT_BITS
    pairs = row[:size], moved_down(row, low_bytes, size, most=size // 8)
    return [*_halves(pairs[0], tags[:TAG_BITS]), *_halves(pairs[1], tags.word_select(2, TAG_BITS))]


def _halves(pair: Value, tag: Value) -> tuple[Value, Value]:
    """The two values of a pair, of which ``tag`` is the first one's."""
    return pair[:FLOAT_BITS], by_size(tag, lambda bits: pair[bits:][:FLOAT_BITS])


def _words(value: Value, width: int) -> list[Value]:
    return [value[at : at + width] for at in range(0, len(value), width)]
