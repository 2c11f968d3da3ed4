"""Pieces of 0 to 4 bytes joined without gaps, and cut apart again: two trees of byte shifters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import product
from operator import or_

from amaranth import Cat, Const, Mux, Value

from fanin.codec import FLOAT_BITS, TAG_BITS, TAG_BYTES, Tag
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.stream.lanes import rotated

QUAD = 4  # pieces that are joined, or cut apart, in one cycle
QUAD_BITS = QUAD * FLOAT_BITS
REACH = 4  # quads by which bytes are moved in one cycle, behind a multiplexer


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
    sizes = [extra + size for size in _totals(len(tags) // TAG_BITS)]
    width = max(sizes).bit_length()
    return Cat(_told(tags, (size >> bit & 1 for size in sizes)) for bit in range(width))


def _totals(count: int) -> list[int]:
    """Bytes behind so many tags, for each of their combinations."""
    tags = range(0, count * TAG_BITS, TAG_BITS)
    return [sum(TAG_BYTES[Tag(word >> at & 3)] for at in tags) for word in range(1 << count * TAG_BITS)]


def _told(index: Value, table: Iterable[int]) -> Value:
    """The bit that a table has at ``index``."""
    return Cat(Const(int(bit), 1) for bit in table).bit_select(index, 1)


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


def _gathered(values: Sequence[Value], tags: Value) -> Value:
    """The bytes of four values in a row.

    Each is turned within its four bytes and put to all the places in the row where it may belong; meanwhile the
    tags in front of it tell at which it does.
    """
    size = FLOAT_BITS // 8
    row: list[Value] = [Const(0, 8)] * (QUAD * size)
    for n, value in enumerate(values):
        before, starts = tags[: n * TAG_BITS], _totals(n)
        turned = rotated(value, _sizes(before, 0)[:2])
        for place in range((n + 1) * size):
            here = _told(before, (start <= place < start + size for start in starts))
            row[place] |= Mux(here, turned.word_select(place % size, 8), 0)
    return Cat(row)


def _joined(low: Value, high: Value, fine: Value, quads: Value) -> list[Value]:
    """The bytes of ``low``, then those of ``high``; both are as long. They are what all parts have together.

    ``low`` has as many quads of bytes as the position of the one in ``quads`` says, and ``fine`` bytes more.
    ``high`` is turned by ``fine`` bytes, and its quads put to all the places where they may belong: in each
    part by ``REACH`` of the numbers of quads.
    """
    size = len(low) // 8
    turned = rotated(high, fine)
    numbers = range(size // QUAD)
    parts = []
    for first in numbers[::REACH]:
        row = _words(low, 8) if first == 0 else [Const(0, 8)] * size
        row += [Const(0, 8)] * size
        for n, place in product(numbers[first : first + REACH], range(2 * size)):
            fits = [0 <= place - QUAD * n - moved < size for moved in range(QUAD)]
            belongs = _told(fine, fits) & quads[n]
            if n == 0 and place >= size:
                belongs |= quads[-1]  # ``low`` is full, ``high`` not turned
            elif not any(fits):
                continue
            row[place] |= Mux(belongs, turned.word_select((place - QUAD * n) % size, 8), 0)
        parts.append(Cat(row))
    return parts


def _whole_quads(count: Value, most: int) -> Value:
    """A one at the number of whole quads in ``count`` bytes, of which there are ``most`` at the most."""
    return Cat(count[2:] == n for n in range(most // QUAD + 1))


def join(pipeline: Pipeline, tags: Value, values: Sequence[Value], *, extra: int) -> tuple[Value, Value]:
    """The bytes of 8 or 16 values in a row, and how many, plus ``extra``.

    ``values`` are zero beyond what their tags say. Latency: :func:`shifter_latency`.
    """
    register = pipeline.register
    size = QUAD_BITS // 8
    quad_tags = _words(tags, QUAD * TAG_BITS)
    rows = [_gathered(values[QUAD * n :][:QUAD], its_tags) for n, its_tags in enumerate(quad_tags)]
    rows = [register(row, name=f"row{size}_{n}") for n, row in enumerate(rows)]
    # the last count moves nothing, so that it may have something added
    sums = [bytes_of(its_tags) for its_tags in quad_tags[:-1]] + [bytes_of(quad_tags[-1], extra)]
    counts = [register(count, name=f"count{size}_{n}") for n, count in enumerate(sums)]
    quads = [_whole_quads(count, size) for count in counts[::2]]  # only lower rows' move something
    while len(rows) > 1:
        joined = [
            _joined(low, high, count[:2], whole)
            for low, high, count, whole in zip(rows[::2], rows[1::2], counts[::2], quads, strict=True)
        ]
        sums = [low + high for low, high in zip(counts[::2], counts[1::2], strict=True)]
        size *= 2
        rows = [
            reduce(or_, (register(part, name=f"row{size}_{n}_{k}") for k, part in enumerate(parts)))
            for n, parts in enumerate(joined)
        ]
        counts = [register(count, name=f"count{size}_{n}") for n, count in enumerate(sums)]
        # decoded a cycle before it is wanted: a row of 32 bytes leaves no time for it
        lower = sums[::2] if len(sums) > 1 else []
        quads = [register(_whole_quads(count, size), name=f"quads{size}_{n}") for n, count in enumerate(lower)]
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
