"""The bytes of a word: rotated, masked and merged."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Mux


def rotated(value: Any, places: Any, *, unit: int = 8) -> Any:
    """``value`` rotated up by ``places`` times ``unit`` bits, or down if that is negative; 4:1 multiplexers."""
    for low in range(0, len(places), 2):
        steps = [value.rotate_left(unit * (n << low)) for n in range(4)]
        value = Mux(places[low], steps[1], steps[0])
        if low + 1 < len(places):
            value = Mux(places[low + 1], Mux(places[low], steps[3], steps[2]), value)
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
