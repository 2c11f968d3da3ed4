"""Steps of a search: from visited states to their successors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fanin.sim.checker.system import Searched, Ways
from fanin.sim.checker.tables import Flags, Numbers
from fanin.sim.checker.visited import WHOLLY, Visited

Chosen = list[tuple[int, Flags]]  # slots, each with the states that are expanded by its events


class Steps:
    """Steps from the ``visited`` states of ``system``."""

    def __init__(self, system: Searched, visited: Visited):
        self.system, self.visited = system, visited

    def of(self, numbers: Numbers, chosen: Chosen) -> Ways:
        """Return all steps from states by the events of the chosen slots, with canonical successors."""
        rows, found = self.visited.rows(numbers), []
        for slot, flags in chosen:
            at = np.flatnonzero(flags)
            for actor in range(self.system.actors):
                ways = self.system.ways(rows[at], slot, actor)
                found.append(ways._replace(source=at[ways.source]))
        joined = Ways(*map(np.concatenate, zip(*found, strict=True)))
        return joined._replace(rows=self.system.canonical(joined.rows))

    def taken(self, numbers: Numbers) -> Chosen:
        """Return the slots by whose events the search has expanded states."""
        taken, slots = self.visited.taken[numbers], range(self.system.slots)
        wholly = taken == WHOLLY
        if wholly.all():
            return [(slot, wholly) for slot in slots]
        alone = self.system.alone(self.visited.rows(numbers))
        return [(slot, wholly | (alone[:, slot] & (slot <= taken))) for slot in slots]

    def each(self, state: Numbers) -> Iterator[tuple[Any, Numbers, tuple[str, str] | None]]:
        """Yield the steps from one state, visited or not: event, state after it, and violation or None."""
        for slot in range(self.system.slots):
            for actor in range(self.system.actors):
                ways = self.system.ways(state[None], slot, actor)
                for after, event, broken in zip(ways.rows, ways.events, ways.broken, strict=True):
                    yield self.system.event(event), after, self.system.violations.values[broken]
