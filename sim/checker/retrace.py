"""Reconstruction of a path from the start to a visited state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.steps import Steps
from fanin.sim.checker.tables import Numbers, fingerprints

_BATCH = 1 << 13  # states that are expanded at once
Mark = tuple[int, int, int]  # a state's fingerprint, the rank that owns it, and its number there


class Retrace:
    """Finder of paths from the start to visited states, level by level; all processes make the same calls.

    Predecessors are not kept: one predecessor would take as much memory as the state. The previous level is
    therefore expanded again. Of several predecessors, the one with the least fingerprint is used.
    """

    def __init__(self, steps: Steps, exchange: RowExchange, group: Group):
        self._steps, self._exchange, self._group = steps, exchange, group
        self._system, self._visited = steps.system, steps.visited

    def least_mark(self, numbers: Numbers) -> Mark:
        """Return the mark of the state with the least fingerprint among ``numbers``, which is not empty."""
        marks = fingerprints(self._system.columns, self._visited.rows(numbers))
        index = int(np.argmin(marks))
        return int(marks[index]), self._group.rank, int(numbers[index])

    def events(self, mark: Mark) -> tuple[list[Any], Numbers]:
        """Return the events from the start to a state, and that state; both keep the start's workers' names."""
        state, events = self._system.start, []
        for target in self._path(mark)[1:]:
            event, state = next(
                (event, successor)
                for event, successor, violation in self._steps.successors(state)
                if not violation and (self._system.canonical(successor[None])[0] == target).all()
            )
            events.append(event)
        return events, state

    def _path(self, mark: Mark) -> list[Numbers]:
        """Return the states from the start to this one."""
        path, (_, owner, number) = [self._state(mark)], mark
        depth = self._visited.level_of(number) if owner == self._group.rank else 0
        for level in reversed(range(max(self._group.gather(depth)))):
            predecessors = self._leading_to(path[0], level)
            marks = self._group.gather([self.least_mark(predecessors)] if len(predecessors) else [])
            path.insert(0, self._state(min(itertools.chain(*marks))))
        return path

    def _state(self, mark: Mark) -> Numbers:
        _, owner, number = mark
        numbers = [number] if owner == self._group.rank else []
        return self._exchange.broadcast(self._visited.rows(np.array(numbers, np.int32)))[0]

    def _leading_to(self, target: Numbers, level: int) -> Numbers:
        """Return this process's states in a level from which one step leads to ``target``."""
        numbers, predecessors = self._visited.numbers(level), [np.empty(0, np.int32)]
        for part in chunks(len(numbers), _BATCH):
            batch = numbers[part]
            transitions = self._steps.transitions(batch, self._steps.expanded_slots(batch))
            reaches_target = (transitions.rows == target).all(axis=1) & (transitions.violations == 0)
            predecessors.append(batch[transitions.source[reaches_target]])
        return np.concatenate(predecessors)
