"""Parser of ``--stragglers``: pairs WHO:VALUE, separated by commas."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fanin.base.errors import InputError
from fanin.runs.pairs import add, number_of, pairs

MAX_FACTOR = 1_000_000


@dataclass(frozen=True)
class Stragglers:
    """Factors on computing time: per worker in ``slow``, and ``factor`` for any gradient with probability
    ``odds``.
    """

    odds: float = 0.0
    factor: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)


def parse_stragglers(text: str, workers: int) -> Stragglers:
    """Parse ``3:2.5`` (worker 3) and ``5%:4`` (probability). Raises InputError that names a malformed entry."""
    odds: list[tuple[float, float]] = []
    slow: dict[int, float] = {}
    for entry, who, value in pairs("--stragglers", text, "3:2.5 or 5%:4"):
        if not 0 < value <= MAX_FACTOR:
            raise InputError(f"--stragglers {entry}: a factor must be above 0 and at most {MAX_FACTOR:,}")
        if who.endswith("%"):
            odds.append((_odds(entry, who), value))
        else:
            add(slow, "--stragglers", entry, number_of("--stragglers", entry, who, workers), value)
    if len(odds) > 1:
        raise InputError(f"--stragglers {text}: one probability can be given, not {len(odds)}")
    return Stragglers(*(odds or [(0.0, 1.0)])[0], slow)


def _odds(entry: str, who: str) -> float:
    try:
        percent = float(who[:-1])
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise InputError(f"--stragglers {entry}: a probability is 0% to 100%")
    return percent / 100
