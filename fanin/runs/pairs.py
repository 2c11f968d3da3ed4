"""Options of pairs WHO:VALUE, separated by commas, such as ``--stop``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fanin.base.errors import InputError

MAX_STOP = 1_000_000_000  # seconds


def parse_stops(text: str, count: int, kind: str = "worker") -> dict[int, float]:
    """``4:0.02``: which of ``count`` workers, and simulated seconds. Raises InputError that names what is none.

    ``kind`` is what they are called.
    """
    stops: dict[int, float] = {}
    for entry, who, value in pairs("--stop", text, "4:0.02"):
        if value > MAX_STOP:
            raise InputError(f"--stop {entry}: at most {MAX_STOP:,} s")
        add(stops, "--stop", entry, number_of("--stop", entry, who, count, kind), value, kind)
    return stops


def pairs(option: str, text: str, example: str) -> Iterator[tuple[str, str, float]]:
    """Each entry, what is in front of its colon, and the number behind: at least 0, finite."""
    for entry in text.split(",") if text else ():
        who, _, number = entry.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise InputError(f"{option}: {entry!r} is not of the form {example}")
        yield entry, who.strip(), value


def number_of(option: str, entry: str, who: str, count: int, kind: str = "worker") -> int:
    """Which of ``count`` an entry names. Raises InputError."""
    if not who.isdecimal() or int(who) >= count:
        raise InputError(f"{option} {entry}: {kind}s are 0 to {count - 1}")
    return int(who)


def add(
    found: dict[int, float], option: str, entry: str, number: int, value: float, kind: str = "worker"
) -> None:
    """Note an entry's value. Raises InputError for a second one."""
    if number in found:
        raise InputError(f"{option} {entry}: {kind} {number} has been named before")
    found[number] = value
