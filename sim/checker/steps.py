"""Expansion of visited states: the steps to their successors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fanin.sim.checker.system import Searchable, Transitions
from fanin.sim.checker.tables import Flags, Numbers
from fanin.sim.checker.visited import ALL_SLOTS, VisitedStates

SlotFlags = list[tuple[int, Flags]]  # slots, each with the states that are expanded by its events


class Steps:
    """Source of the steps from the ``visited`` states of ``system``."""

    def __init__(self, system: Searchable, visited: VisitedStates):
        self.system, self.visited = system, visited

    def transitions(self, numbers: Numbers, slots: SlotFlags) -> Transitions:
        """Return all steps from states by the events of ``slots``, with canonical successors."""
        rows = self.visited.rows(numbers)
        batches = []
        for slot, flags in slots:
            states = np.flatnonzero(flags)
            for actor in range(self.system.actors):
                transitions = self.system.transitions(rows[states], slot, actor)
                batches.append(transitions._replace(source=states[transitions.source]))
        combined = Transitions(*map(np.concatenate, zip(*batches, strict=True)))
        return combined._replace(rows=self.system.canonical(combined.rows))

    def expanded_slots(self, numbers: Numbers) -> SlotFlags:
        """Return, per slot, the states that the search has expanded by the slot's events."""
        expansions, slots = self.visited.expanded_by[numbers], range(self.system.slots)
        wholly = expansions == ALL_SLOTS
        if wholly.all():
            return [(slot, wholly) for slot in slots]
        independent = self.system.independent_slots(self.visited.rows(numbers))
        return [(slot, wholly | (independent[:, slot] & (slot <= expansions))) for slot in slots]

    def successors(self, state: Numbers) -> Iterator[tuple[Any, Numbers, tuple[str, str] | None]]:
        """Yield the steps from one state, visited or not: event, state after it, and violation or None."""
        for slot in range(self.system.slots):
            for actor in range(self.system.actors):
                transitions = self.system.transitions(state[None], slot, actor)
                for successor, event, violation in zip(
                    transitions.rows, transitions.events, transitions.violations, strict=True
                ):
                    yield self.system.event(event), successor, self.system.violations.values[violation]
