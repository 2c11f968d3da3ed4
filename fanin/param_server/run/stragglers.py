"""Parser of ``--stragglers``: pairs WHO:VALUE, separated by commas."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fanin.base.errors import InputError
from fanin.runs.pairs import add, number_of, pairs

MAX_FACTOR = 1_000_000


@dataclass(frozen=True)
class Stragglers:
    """Factors on the time of computing a gradient.

    - ``probability``: share of gradients whose time is multiplied by ``factor``, 0 to 1.
    - ``worker_factors``: constant factors by worker.
    """

    probability: float = 0.0
    factor: float = 1.0
    worker_factors: dict[int, float] = field(default_factory=dict)


def parse_stragglers(text: str, workers: int) -> Stragglers:
    """Parse ``3:2.5`` (worker 3) and ``5%:4`` (probability). Raises InputError that names a malformed entry."""
    random_factors: list[tuple[float, float]] = []
    worker_factors: dict[int, float] = {}
    for entry, selector, value in pairs("--stragglers", text, "3:2.5 or 5%:4"):
        if not 0 < value <= MAX_FACTOR:
            raise InputError(f"--stragglers {entry}: a factor must be above 0 and at most {MAX_FACTOR:,}")
        if selector.endswith("%"):
            random_factors.append((_probability(entry, selector), value))
        else:
            add(
                worker_factors,
                "--stragglers",
                entry,
                number_of("--stragglers", entry, selector, workers),
                value,
            )
    if len(random_factors) > 1:
        raise InputError(f"--stragglers {text}: one probability can be given, not {len(random_factors)}")
    return Stragglers(*(random_factors or [(0.0, 1.0)])[0], worker_factors)


def _probability(entry: str, percentage: str) -> float:
    try:
        percent = float(percentage[:-1])
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise InputError(f"--stragglers {entry}: a probability is 0% to 100%")
    return percent / 100
