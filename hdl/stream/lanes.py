"""The bytes of a word: turned, counted off, and chosen."""

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
    """Ones from bit ``first`` on, of ``size``; upper and lower half apart, to be quick."""
    split = (len(first) + 1) // 2
    low, high = first[:split], first[split:]
    above, same = [high < n for n in range(1 << len(high))], [high == n for n in range(1 << len(high))]
    reached = [low <= n for n in range(1 << split)]
    return Cat(above[n >> split] | same[n >> split] & reached[n % (1 << split)] for n in range(size))


def chosen(mask: Any, a: Any, b: Any) -> Any:
    """The bytes of ``a`` where ``mask`` is set, those of ``b`` elsewhere."""
    return Cat(Mux(mask[n], a.word_select(n, 8), b.word_select(n, 8)) for n in range(len(mask)))
