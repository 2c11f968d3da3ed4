"""What ``--stragglers`` and ``--stop`` say: pairs WHO:VALUE, separated by commas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from fanin.errors import InputError

MAX_FACTOR = 1_000_000
MAX_STOP = 1_000_000_000  # seconds


@dataclass(frozen=True)
class Stragglers:
    """Who takes how many times as long: workers always, by ``slow``; any gradient with probability ``odds``."""

    odds: float = 0.0
    factor: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)


def parse_stragglers(text: str, workers: int) -> Stragglers:
    """``3:2.5`` is worker 3, ``5%:4`` a probability. Raises InputError that names what is none."""
    odds: list[tuple[float, float]] = []
    slow: dict[int, float] = {}
    for entry, who, value in _pairs("--stragglers", text, "3:2.5 or 5%:4"):
        if not 0 < value <= MAX_FACTOR:
            raise InputError(f"--stragglers {entry}: a factor must be above 0 and at most {MAX_FACTOR:,}")
        if who.endswith("%"):
            odds.append((_odds(entry, who), value))
        else:
            _add(slow, "--stragglers", entry, _worker("--stragglers", entry, who, workers), value)
    if len(odds) > 1:
        raise InputError(f"--stragglers {text}: one probability can be given, not {len(odds)}")
    return Stragglers(*(odds or [(0.0, 1.0)])[0], slow)


def parse_stops(text: str, workers: int) -> dict[int, float]:
    """``4:0.02``: worker, and simulated seconds. Raises InputError that names what is none."""
    stops: dict[int, float] = {}
    for entry, who, value in _pairs("--stop", text, "4:0.02"):
        if value > MAX_STOP:
            raise InputError(f"--stop {entry}: at most {MAX_STOP:,} s")
        _add(stops, "--stop", entry, _worker("--stop", entry, who, workers), value)
    return stops


def _pairs(option: str, text: str, example: str) -> Iterator[tuple[str, str, float]]:
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


def _odds(entry: str, who: str) -> float:
    try:
        percent = float(who[:-1])
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise InputError(f"--stragglers {entry}: a probability is 0% to 100%")
    return percent / 100


def _worker(option: str, entry: str, who: str, workers: int) -> int:
    if not who.isdecimal() or int(who) >= workers:
        raise InputError(f"{option} {entry}: workers are 0 to {workers - 1}")
    return int(who)


def _add(found: dict[int, float], option: str, entry: str, worker: int, value: float) -> None:
    if worker in found:
        raise InputError(f"{option} {entry}: worker {worker} has been named before")
    found[worker] = value
