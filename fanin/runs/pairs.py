"""Options whose value is a comma-separated list of pairs NUMBER:VALUE, such as ``--stop``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fanin.base.errors import InputError
from fanin.base.limits import is_number

MAX_STOP = 1_000_000_000  # seconds

K = TypeVar("K")


def parse_stops(text: str, count: int, kind: str = "worker") -> dict[int, float]:
    """Parse ``--stop``: return the stop times in simulated seconds, by worker. Raises InputError.

    - ``text``: pairs such as ``4:0.02``, which stops worker 4 after 0.02 s.
    - ``count``: number of workers.
    - ``kind``: name of a worker in messages.
    """
    return parse_named_stops(text, lambda entry, number: number_of("--stop", entry, number, count, kind), kind)


def parse_named_stops(text: str, identify: Callable[[str, str], K], kind: str) -> dict[K, float]:
    """Parse ``--stop``; ``identify`` returns what an entry and its text before the colon name."""
    stops: dict[K, float] = {}
    for entry, name, value in pairs("--stop", text, "4:0.02"):
        if value > MAX_STOP:
            raise InputError(f"--stop {entry}: at most {MAX_STOP:,} s")
        add(stops, "--stop", entry, identify(entry, name), value, kind)
    return stops


def pairs(option: str, text: str, example: str) -> Iterator[tuple[str, str, float]]:
    """Yield each entry of a list, its text before the colon, and the number after it (finite, at least 0)."""
    for entry in text.split(",") if text else ():
        key, _, number = entry.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise InputError(f"{option}: {entry!r} is not of the form {example}")
        yield entry, key.strip(), value


def number_of(
    option: str, entry: str, number: str, count: int, kind: str = "worker", others: Sequence[str] = ()
) -> int:
    """Return the number, below ``count``, of the worker that an entry names. Raises InputError.

    - ``others``: names of switches, for the message only.
    """
    if not is_number(number) or int(number) >= count:
        switches = f"; switches below the root are {', '.join(others)}" if others else ""
        raise InputError(f"{option} {entry}: {kind}s are 0 to {count - 1}{switches}")
    return int(number)


def add(values: dict[K, float], option: str, entry: str, number: K, value: float, kind: str = "worker") -> None:
    """Add an entry to ``values``. Raises InputError for a second entry of the same number."""
    if number in values:
        raise InputError(f"{option} {entry}: {kind} {number} has been named before")
    values[number] = value
