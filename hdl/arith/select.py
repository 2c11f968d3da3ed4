"""Selection among values: multiplexers, constant tables, leading-zero count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Mux, Value


def select(choices: Sequence[Value], index: Value) -> Value:
    """Return ``choices[index]`` through a tree of multiplexers.

    ``choices`` has an entry for every value of ``index``: 2^n for n bits. Raises ValueError otherwise.
    """
    if len(choices) != 1 << len(index):
        raise ValueError(
            f"choices must be {1 << len(index)}, for {len(index)} bits of index, not {len(choices)}"
        )
    for bit in index:
        choices = [Mux(bit, odd, even) for even, odd in zip(choices[::2], choices[1::2], strict=True)]
    (choice,) = choices
    return choice


def one_hot(choices: Iterable[Any], lines: Value) -> Value:
    """Return the choice whose line is high, by ANDs and ORs; 0 if no line is high.

    - ``choices``: values, at least one.
    - ``lines``: a bit for each choice. At most one may be high; otherwise the result is the OR of several
      choices.

    Raises ValueError if the numbers of choices and lines differ.
    """
    values = map(Value.cast, choices)
    return reduce(or_, (value & line.replicate(len(value)) for value, line in zip(values, lines, strict=True)))


def lookup(table: Sequence[int], index: Value) -> Value:
    """Return entry ``index`` of a constant table with an entry for every value of ``index``.

    The result has the bits of the greatest entry; 0 bits for a table of zeros. Each of its bits is a function
    of ``index`` of its own: bit ``index`` of a constant with that bit of every entry. Entries must be at least
    0.
    """
    if min(table) < 0:
        raise ValueError(f"table must have no entry below 0, not {min(table)}")
    width = max(table).bit_length()
    return Cat(
        Const(sum(((entry >> bit) & 1) << n for n, entry in enumerate(table)), len(table)).bit_select(index, 1)
        for bit in range(width)
    )


def leading_zeros(bits: Value) -> Value:
    """Return the number of zeros above the highest one of ``bits``; undefined if ``bits`` is zero."""
    # Ones below ``bits`` pad its length to a power of two, and do not change the zeros above.
    size = 1 << (len(bits) - 1).bit_length()
    count, _ = _leading_zeros(Cat(Const(-1, size)[len(bits) :], bits))
    return count


def _leading_zeros(bits: Value) -> tuple[Value, Value]:
    """Return the count and whether all bits are zero, from the results of both halves.

    The width of ``bits`` is a power of two.
    """
    if len(bits) == 1:
        return Const(0, 0), ~bits
    half = len(bits) // 2
    (lower, lower_empty), (upper, upper_empty) = _leading_zeros(bits[:half]), _leading_zeros(bits[half:])
    return Cat(Mux(upper_empty, lower, upper), upper_empty), upper_empty & lower_empty
