"""The steps of a search: from the states that it has visited to those behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fanin.sim.checker.system import Searched, Ways
from fanin.sim.checker.tables import Flags, Numbers
from fanin.sim.checker.visited import WHOLLY, Visited

Chosen = list[tuple[int, Flags]]  # slots, and which states are left by the events of each


class Steps:
    """Ways on from the ``visited`` states of ``system``."""

    def __init__(self, system: Searched, visited: Visited):
        self.system, self.visited = system, visited

    def of(self, numbers: Numbers, chosen: Chosen) -> Ways:
        """All ways on from states, by the events of slots; to canonical states where nothing is broken."""
        rows, found = self.visited.rows(numbers), []
        for slot, flags in chosen:
            at = np.flatnonzero(flags)
            for actor in range(self.system.actors):
                ways = self.system.ways(rows[at], slot, actor)
                found.append(ways._replace(source=at[ways.source]))
        joined = Ways(*map(np.concatenate, zip(*found, strict=True)))
        return joined._replace(rows=self.system.canonical(joined.rows))

    def taken(self, numbers: Numbers) -> Chosen:
        """By which slots' events the search has left states."""
        taken, slots = self.visited.taken[numbers], range(self.system.slots)
        wholly = taken == WHOLLY
        if wholly.all():
            return [(slot, wholly) for slot in slots]
        alone = self.system.alone(self.visited.rows(numbers))
        return [(slot, wholly | (alone[:, slot] & (slot <= taken))) for slot in slots]

    def each(self, state: Numbers) -> Iterator[tuple[Any, Numbers, tuple[str, str] | None]]:
        """Ways on from one state, visited or not: the event, the state after it, what it breaks, and how."""
        for slot in range(self.system.slots):
            for actor in range(self.system.actors):
                ways = self.system.ways(state[None], slot, actor)
                for after, event, broken in zip(ways.rows, ways.events, ways.broken, strict=True):
                    yield self.system.event(event), after, self.system.violations.values[broken]
