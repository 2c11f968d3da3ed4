"""Points of a campaign: combinations of lists, and random draws."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from sys import float_info
from typing import Any

from fanin.base.errors import InputError

_DIGITS = 6  # significant digits of a drawn number, short enough for a command line
_RANGES = ("uniform", "log", "integer")


def products(table: Mapping[str, Any], location: str, *, maximum: int) -> Iterator[dict[str, Any]]:
    """Yield all combinations of a table's values; a list has several values, any other type is one value.

    Raises InputError for an empty list, and for more than ``maximum`` combinations.

    - ``table``: values by option.
    - ``location``: location of the table in the file, for errors.
    - ``maximum``: maximum number of combinations.
    """
    choices = {key: value if isinstance(value, list) else [value] for key, value in table.items()}
    for key, values in choices.items():
        if not values:
            raise InputError(f"{location}.{key}: is an empty list")
    if not choices:
        raise InputError(f"{location}: is empty")
    if math.prod(map(len, choices.values())) > maximum:
        raise InputError(f"{location}: has more than {maximum:,} combinations")
    for point in itertools.product(*choices.values()):
        yield dict(zip(choices, point, strict=True))


def draw(table: Mapping[str, Any], location: str, *, maximum: int) -> list[dict[str, Any]]:
    """Draw the points of a table ``[random]``; the same seed gives the same points. Raises InputError.

    - ``table``: ``draws`` (number of points), ``seed`` (default 0), ``options`` (list or range by option).
    - ``location``: location of the table in the file, for errors.
    - ``maximum``: maximum number of points.
    """
    if unknown := [key for key in table if key not in ("draws", "seed", "options")]:
        raise InputError(f"{location}.{unknown[0]}: unknown key; keys are draws, seed, options")
    draws, seed, options = table.get("draws"), table.get("seed", 0), table.get("options")
    if type(draws) is not int or draws < 1:
        raise InputError(f"{location}.draws: must be an integer of at least 1, not {draws!r}")
    if draws > maximum:
        raise InputError(f"{location}.draws: must be at most {maximum:,}, not {draws}")
    if type(seed) is not int:
        raise InputError(f"{location}.seed: must be an integer, not {seed!r}")
    if not isinstance(options, dict) or not options:
        raise InputError(f"{location}.options: must be a table of what is drawn")
    generator = random.Random(seed)
    return [
        {key: _draw_value(generator, value, f"{location}.options.{key}") for key, value in options.items()}
        for _ in range(draws)
    ]


def _draw_value(generator: random.Random, value: Any, location: str) -> Any:
    """Draw a member of a list, or a number in a range."""
    if isinstance(value, list) and value:
        return generator.choice(value)
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(_RANGES):
        raise InputError(
            f"{location}: must be a list, or a table of one of {', '.join(_RANGES)}, not {value!r}"
        )
    ((kind, ends),) = value.items()
    low, high = _range_ends(ends, kind, location)
    if kind != "integer":
        low, high = float(low), float(high)  # the difference of two large integers may not fit a float
    if kind == "integer":
        return generator.randint(round(low), round(high))
    number = generator.uniform(low, high) if kind == "uniform" else low * (high / low) ** generator.random()
    return float(f"{number:.{_DIGITS}g}")


def _range_ends(ends: Any, kind: str, location: str) -> tuple[float, float]:
    """Check and return the ends of a range."""
    kinds = (int,) if kind == "integer" else (int, float)
    is_pair = (
        isinstance(ends, list)
        and len(ends) == 2
        and all(type(end) in kinds and abs(end) <= float_info.max for end in ends)
    )
    if not is_pair or not ends[0] <= ends[1] or (kind == "log" and ends[0] <= 0):
        expected = {"integer": "two integers", "uniform": "two numbers", "log": "two numbers above 0"}[kind]
        raise InputError(f"{location}.{kind}: must be {expected}, the lower one first, not {ends!r}")
    return ends[0], ends[1]
