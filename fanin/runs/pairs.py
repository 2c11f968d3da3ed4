"""Options whose value is a comma-separated list of pairs NUMBER:VALUE, such as ``--stop``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fanin.base.errors import InputError
from fanin.base.limits import is_number

MAX_STOP = 1_000_000_000  # seconds


def parse_stops(text: str, count: int, kind: str = "worker") -> dict[int, float]:
    """Parse ``--stop``: return the stop times in simulated seconds, by worker. Raises InputError.

    - ``text``: pairs such as ``4:0.02``, which stops worker 4 after 0.02 s.
    - ``count``: number of workers.
    - ``kind``: name of a worker in messages.
    """
    stops: dict[int, float] = {}
    for entry, number, value in pairs("--stop", text, "4:0.02"):
        if value > MAX_STOP:
            raise InputError(f"--stop {entry}: at most {MAX_STOP:,} s")
        add(stops, "--stop", entry, number_of("--stop", entry, number, count, kind), value, kind)
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


def number_of(option: str, entry: str, number: str, count: int, kind: str = "worker") -> int:
    """Return the number, below ``count``, of the worker that an entry names. Raises InputError."""
    if not is_number(number) or int(number) >= count:
        raise InputError(f"{option} {entry}: {kind}s are 0 to {count - 1}")
    return int(number)


def add(
    values: dict[int, float], option: str, entry: str, number: int, value: float, kind: str = "worker"
) -> None:
    """Add an entry to ``values``. Raises InputError for a second entry of the same number."""
    if number in values:
        raise InputError(f"{option} {entry}: {kind} {number} has been named before")
    values[number] = value
