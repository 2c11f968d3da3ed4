"""When streams pause: phases in which either side of a component is much slower than the other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import Enum

FAST = 0.0
SLOW = 0.97  # nearly stopped: whatever lies before it fills up
LENGTHS = (64, 128)  # cycles of a phase: most queues of small parts fill up in the shorter one


class Side(Enum):
    """Which end of a component a stream is at."""

    SOURCE = "source"
    SINK = "sink"


class Phase(Enum):
    """How the two sides behave for some cycles."""

    FILL = "sources are fast, sinks nearly stopped"
    DRAIN = "sources are nearly stopped, sinks fast"
    FULL_RATE = "both are fast"
    EVEN = "both pause at the given odds"
    UNEVEN = "each stream is fast, nearly stopped, or pauses at the given odds"


class Stalls:
    """Says of each stream, cycle after cycle, whether it pauses.

    ``odds`` 0: no stream ever does. A number above 0, below 1: phases (:class:`Phase`) follow one another in
    rounds, so that every queue and every pipeline behind credits fills up and drains. The first round is in
    the order of ``Phase``, so that a short run fills and drains, too; later rounds are shuffled. A mapping: the
    odds of each stream by name, in every cycle, 0 where it has none. The same ``seed`` gives the same phases.
    """

    def __init__(self, odds: float | Mapping[str, float], seed: object):
        self.odds = odds
        self._rng = random.Random(f"stalls {seed}")
        self._schedule = self._phases()
        self._phase, self._end = next(self._schedule)
        self._own: dict[str, float] = {}  # odds of the streams in an uneven phase

    def pauses(self, name: str, side: Side, cycle: int) -> bool:
        """Whether stream ``name`` pauses in ``cycle``, which never goes back."""
        odds = self._odds_of(name, side, cycle)
        return odds > 0 and self._rng.random() < odds

    def _phases(self) -> Iterator[tuple[Phase, int]]:
        """Each phase with the cycle in which it is over."""
        order, end = list(Phase), 0
        while True:
            for phase in order:
                end += self._rng.choice(LENGTHS)
                yield phase, end
            self._rng.shuffle(order)

    def _odds_of(self, name: str, side: Side, cycle: int) -> float:
        if isinstance(self.odds, Mapping):
            return self.odds.get(name, FAST)
        if not self.odds:
            return FAST
        while cycle >= self._end:
            self._phase, self._end = next(self._schedule)
            self._own.clear()
        match self._phase:
            case Phase.FULL_RATE:
                return FAST
            case Phase.EVEN:
                return self.odds
            case Phase.UNEVEN:
                if name not in self._own:
                    self._own[name] = self._rng.choice((FAST, SLOW, self.odds))
                return self._own[name]
        slow = Side.SINK if self._phase is Phase.FILL else Side.SOURCE
        return SLOW if side is slow else FAST
