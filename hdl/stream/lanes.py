"""Byte lanes of a word: rotate, mask and merge."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Mux


def rotated(value: Any, places: Any, *, unit: int = 8) -> Any:
    """Return ``value`` rotated left by ``places`` · ``unit`` bits; a negative ``unit`` rotates right."""
    for n, bit in enumerate(places):
        value = Mux(bit, value.rotate_left(unit << n), value)
    return value


def ones_from(first: Any, size: int) -> Any:
    """Return ``size`` bits with ones from bit ``first`` upwards."""
    return Cat(first <= n for n in range(size))


def ones_through(last: Any, size: int) -> Any:
    """Return ``size`` bits with ones from bit 0 to bit ``last``, inclusive."""
    return Cat(last >= n for n in range(size))


def select_lanes(mask: Any, selected: Any, others: Any) -> Any:
    """Return a word: bytes of ``selected`` where ``mask`` has a one, and bytes of ``others`` elsewhere."""
    return Cat(Mux(mask[n], selected.word_select(n, 8), others.word_select(n, 8)) for n in range(len(mask)))
