"""Random pauses of streams, with phases in which one side of a component is much slower than the other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import Enum

FAST = 0.0
SLOW = 0.97  # probability of a pause: buffers upstream of a nearly stopped stream fill up
LENGTHS = (64, 128)  # cycles of a phase; most queues of small parts fill up in the shorter one


class Side(Enum):
    """End of a component that a stream belongs to."""

    SOURCE = "source"
    SINK = "sink"


class Phase(Enum):
    """Behaviour of the two sides for some cycles."""

    FILL = "sources are fast, sinks nearly stopped"
    DRAIN = "sources are nearly stopped, sinks fast"
    FULL_RATE = "both are fast"
    EVEN = "both pause at the given odds"
    UNEVEN = "each stream is fast, nearly stopped, or pauses at the given odds"


class Stalls:
    """Schedule of pauses: decides for each stream and cycle whether the stream pauses.

    ``odds``: probability of a pause in a cycle, in one of three forms.

    - 0: no stream ever pauses.
    - A number between 0 and 1: phases (:class:`Phase`) follow each other in rounds, so that every queue and
      every pipeline with credits fills up and drains. The first round has the order of ``Phase``, so that even
      a short run fills and drains; later rounds are shuffled.
    - A mapping: the odds of each stream by name, in every cycle; 0 for others.

    ``seed``: the same seed gives the same phases.
    """

    def __init__(self, odds: float | Mapping[str, float], seed: object):
        self.odds = odds
        self._rng = random.Random(f"stalls {seed}")
        self._schedule = self._phases()
        self._phase, self._end = next(self._schedule)
        self._stream_odds: dict[str, float] = {}  # odds of the streams in an uneven phase

    def pauses(self, name: str, side: Side, cycle: int) -> bool:
        """Return whether stream ``name`` pauses in ``cycle``, which must not decrease between calls."""
        odds = self._odds_of(name, side, cycle)
        return odds > 0 and self._rng.random() < odds

    def _phases(self) -> Iterator[tuple[Phase, int]]:
        """Yield each phase with the cycle in which it ends."""
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
            self._stream_odds.clear()
        match self._phase:
            case Phase.FULL_RATE:
                return FAST
            case Phase.EVEN:
                return self.odds
            case Phase.UNEVEN:
                if name not in self._stream_odds:
                    self._stream_odds[name] = self._rng.choice((FAST, SLOW, self.odds))
                return self._stream_odds[name]
        slow_side = Side.SINK if self._phase is Phase.FILL else Side.SOURCE
        return SLOW if side is slow_side else FAST
