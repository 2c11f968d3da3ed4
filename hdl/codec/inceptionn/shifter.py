"""Pieces of 0 to 4 bytes joined without gaps, and cut apart again: two trees of byte shifters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce
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


def bytes_of(tags: Value, extra: int = 0) -> Value:
    """Bytes behind tags, and ``extra`` more: two tags at a time by table, then added."""
    *others, last = _words(tags, 2 * TAG_BITS)
    return sum((_sizes(part, 0) for part in others), _sizes(last, extra))


def _sizes(tags: Value, extra: int) -> Value:
    """The table: a LUT for each bit, of up to three tags."""
    sizes = [extra + size for size in _totals(len(tags) // TAG_BITS)]
    width = max(sizes).bit_length()
    return Cat(looked_up(tags, (size >> bit & 1 for size in sizes)) for bit in range(width))


def _totals(count: int) -> list[int]:
    """Bytes behind so many tags, for each of their combinations."""
    tags = range(0, count * TAG_BITS, TAG_BITS)
    return [sum(TAG_BYTES[Tag(word >> at & 3)] for at in tags) for word in range(1 << count * TAG_BITS)]


def looked_up(index: Value, table: Iterable[int]) -> Value:
    """The bit that a table has at ``index``."""
    return Cat(Const(int(bit), 1) for bit in table).bit_select(index, 1)


def picked(choices: Sequence[Value], index: Value) -> Value:
    """The choice that ``index`` says, one for each of its numbers: 4:1 multiplexers, a LUT each."""
    for low in range(0, len(index), 2):
        choices = [_opened(choices[at : at + 4], index[low : low + 2]) for at in range(0, len(choices), 4)]
    return choices[0]


def picked_quickly(choices: Sequence[Value], index: Value, others: Sequence[Value]) -> Value:
    """The same in two steps: 4:1 by the top bits, then all is opened at once by the ``others``.

    Those are the lower bits :func:`decoded`, from registers where there is time. The mapper makes that quicker
    than one 4:1 after the other.
    """
    first = _opened if len(others) < 16 else _picked
    fours = (first(choices[n :: len(others)], index[-2:]) for n in range(len(others)))
    return reduce(or_, (Mux(here, four, 0) for here, four in zip(others, fours, strict=True)))


def decoded(index: Value) -> list[Value]:
    """A one at the place that ``index`` says."""
    return [index == n for n in range(1 << len(index))]


def _picked(choices: Sequence[Value], index: Value) -> Value:
    """One of four by multiplexers."""
    return Mux(index[1], Mux(index[0], choices[3], choices[2]), Mux(index[0], choices[1], choices[0]))


def _opened(choices: Sequence[Value], index: Value) -> Value:
    """The same by gates, one of which is open: of multiplexers in a row the mapper makes longer paths."""
    return reduce(or_, (Mux(index == n, choice, 0) for n, choice in enumerate(choices)))


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
            here = looked_up(before, (start <= place < start + size for start in starts))
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
            belongs = looked_up(fine, fits) & quads[n]
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


def cut(
    pipeline: Pipeline, tags: Value, row: Value, low: Value, others: Sequence[Value]
) -> tuple[Value, list[Value]]:
    """The tags and the values of a row of bytes.

    ``low`` is the :func:`rank` of the lower half of the tags, of which ``others`` are its bits but the top two,
    :func:`decoded`. A value's bits beyond what its tag says are any. Latency: :func:`shifter_latency`.
    """
    register = pipeline.register
    rows, moves = [row], [partial(picked_quickly, index=low, others=others)]
    while len(rows[0]) > QUAD_BITS:
        size = len(rows[0]) // 2
        ways = totals(size // FLOAT_BITS)
        halves = [
            half
            for row, moved in zip(rows, moves, strict=True)
            for half in (row[:size], moved([row[8 * total :][:size] for total in ways]))
        ]
        rows = [register(half, name=f"part{len(halves)}_{n}") for n, half in enumerate(halves)]
        quads = _words(tags, len(tags) // len(rows))
        lows = [register(rank(part[: len(part) // 2]), name=f"low{n}") for n, part in enumerate(quads)]
        moves = [partial(picked, index=low) for low in lows]
        tags = register(tags, name=f"tags{len(rows)}")
    thirds = [register(rank(its_tags[: 3 * TAG_BITS]), name=f"third{n}") for n, its_tags in enumerate(quads)]
    values = [
        value
        for row, its_tags, low, third in zip(rows, _words(tags, QUAD * TAG_BITS), lows, thirds, strict=True)
        for value in (
            row[:FLOAT_BITS],
            _value(row, 1, its_tags[:TAG_BITS]),
            _value(row, 2, low),
            _value(row, 3, third),
        )
    ]
    return register(tags, name="value_tags"), [register(it, name=f"value{n}") for n, it in enumerate(values)]


def totals(count: int) -> list[int]:
    """Bytes that so many values may take: all up to 4 each but one byte less, which none can save alone."""
    sums = {0}
    for _ in range(count):
        sums = {total + size for total in sums for size in TAG_BYTES.values()}
    return sorted(sums)


def rank(tags: Value) -> Value:
    """The place of what is behind up to four tags in :func:`totals`: one bit less than a number of bytes."""
    count = len(tags) // TAG_BITS
    known = min(count, 3)  # whose rank is a table of one LUT a bit
    index, sums = tags[: known * TAG_BITS], _totals(known)
    if count > known:
        index = Cat(rank(index), tags[known * TAG_BITS :])
        sums = [total + TAG_BYTES[Tag(tag)] for tag in range(1 << TAG_BITS) for total in _filled(totals(known))]
    ranks = [totals(count).index(total) for total in sums]
    return Cat(looked_up(index, (rank >> bit & 1 for rank in ranks)) for bit in range(max(ranks).bit_length()))


def _filled(values: list[int]) -> list[int]:
    """As many as a power of two, the last one repeated."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


def _value(row: Value, count: int, which: Value) -> Value:
    """The value behind ``count`` others, of whose tags ``which`` is the rank."""
    return picked([row[8 * total :][:FLOAT_BITS] for total in totals(count)], which)


def _words(value: Value, width: int) -> list[Value]:
    return [value[at : at + width] for at in range(0, len(value), width)]
