"""The bytes of a word: rotated, masked and merged."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Mux


def rotated(value: Any, places: Any, *, unit: int = 8) -> Any:
    """``value`` rotated up by ``places`` times ``unit`` bits, or down if that is negative."""
    for n, bit in enumerate(places):
        value = Mux(bit, value.rotate_left(unit << n), value)
    return value


def ones_from(first: Any, size: int) -> Any:
    """Ones from bit ``first`` on, of ``size``."""
    return Cat(first <= n for n in range(size))


def ones_through(last: Any, size: int) -> Any:
    """Ones up to bit ``last``, of ``size``."""
    return Cat(last >= n for n in range(size))


def chosen(mask: Any, ones: Any, zeros: Any) -> Any:
    """The bytes of ``ones`` where ``mask`` has a one, those of ``zeros`` elsewhere."""
    return Cat(Mux(mask[n], ones.word_select(n, 8), zeros.word_select(n, 8)) for n in range(len(mask)))
