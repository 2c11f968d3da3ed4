"""Comparisons that take more than one cycle."""

from itertools import pairwise

from amaranth import Cat, Value


def equal_parts(one: Value, other: Value, parts: int) -> Value:
    """Equality in parts, for a register each: together they say that all is equal, and none is deep."""
    bounds = [len(one) * k // parts for k in range(parts + 1)]
    return Cat(one[a:b] == other[a:b] for a, b in pairwise(bounds))
