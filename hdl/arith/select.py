"""Selection among values: multiplexers, constant tables, leading-zero count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Mux, Value


def select(choices: Sequence[Value], index: Value) -> Value:
    """Return ``choices[index]`` through a tree of multiplexers.

    ``choices`` has an entry for every value of ``index``.
    """
    for bit in index:
        choices = [Mux(bit, odd, even) for even, odd in zip(choices[::2], choices[1::2], strict=True)]
    (choice,) = choices
    return choice


def one_hot(choices: Iterable[Any], lines: Value) -> Value:
    """Return the choice whose line is high, by ANDs and ORs; zeros if no line is high.

    Each choice has one line.
    """
    values = map(Value.cast, choices)
    return reduce(or_, (value & line.replicate(len(value)) for value, line in zip(values, lines, strict=True)))


def lookup(table: Sequence[int], index: Value) -> Value:
    """Return entry ``index`` of a constant table with an entry for every value of ``index``.

    The table becomes one small function per bit.
    """
    width = max(table).bit_length()
    return Cat(
        Const(sum((entry >> bit & 1) << n for n, entry in enumerate(table)), len(table)).bit_select(index, 1)
        for bit in range(width)
    )


def leading_zeros(bits: Value) -> Value:
    """Return the number of zeros above the highest one of ``bits``; meaningless if ``bits`` is zero."""
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
