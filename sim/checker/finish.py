"""Proof that everything finishes: from every visited state, a fault-free path leads to the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.steps import Steps
from fanin.sim.checker.tables import Numbers
from fanin.sim.checker.visited import NOWHERE

_BATCH = 1 << 16  # states that a process handles between two exchanges


class OutOfTime(Exception):
    """The search time ended before the question was answered."""


class Finish:
    """Search for visited states from which the end can be reached, in step with the group's other processes.

    To keep all successors would take more memory than the states themselves. The search therefore keeps one
    fault-free successor in the next level per state, and ``stuck`` follows these backwards. Other successors
    are computed again: first those of states without a kept successor, which are few, and those of all other
    states only if the first do not help.

    ``on`` is called with the number of states left in this round. It returns False to stop with OutOfTime.
    """

    def __init__(self, steps: Steps, exchange: RowExchange, group: Group, *, on: Callable[[int], bool]):
        self._steps, self._exchange, self._group, self._on = steps, exchange, group, on
        self._system, self._visited = steps.system, steps.visited
        self._ends = np.zeros(len(self._visited), bool)  # states known to reach the end

    def stuck(self) -> Numbers:
        """Return this process's states from which the end cannot be reached. Raises OutOfTime."""
        for part in chunks(len(self._ends), _BATCH):
            self._ends[part] = self._system.done(self._visited.rows(part))
        self._follow_back()
        while self._learns(deeper=False) or self._learns(deeper=True):
            self._follow_back()
        return np.flatnonzero(~self._ends).astype(np.int32)

    def _follow_back(self) -> None:
        """Follow the kept successors backwards, from the deepest level."""
        levels = range(self._visited.depth + 1)
        spans = map(self._visited.level, levels)
        unknown = [int(np.count_nonzero(~self._ends[span.start : span.stop])) for span in spans]
        self._check_time(sum(unknown))
        most = np.max(self._group.gather(unknown), axis=0)
        for level in reversed(levels):
            if most[level]:
                numbers = self._visited.numbers(level)
                numbers = numbers[~self._ends[numbers]]
                for part in chunks(most[level], _BATCH):
                    self._follow(numbers[part])

    def _learns(self, *, deeper: bool) -> bool:
        """Expand undecided states (``deeper``: even those with a kept successor); return if any was decided."""
        known = sum(self._group.gather(int(self._ends.sum())))
        unknown = ~self._ends if deeper else ~self._ends & (self._visited.onward == NOWHERE)
        numbers = np.flatnonzero(unknown)[::-1].astype(np.int32)
        for part in chunks(max(self._group.gather(len(numbers))), _BATCH):
            self._check_time(len(numbers[part.start :]))
            self._expand(numbers[part])
        return sum(self._group.gather(int(self._ends.sum()))) > known

    def _check_time(self, left: int) -> None:
        if not self._on(left):
            raise OutOfTime

    def _follow(self, numbers: Numbers) -> None:
        """Mark states whose kept successor reaches the end."""
        onward = self._visited.onward[numbers]
        which = np.flatnonzero(onward != NOWHERE)
        to, rank = np.divmod(onward[which], np.uint32(self._group.size))
        places = [np.flatnonzero(rank == r) for r in range(self._group.size)]
        asked = self._group.exchange([to[at] for at in places])
        leads = self._exchange.answered(places, [self._ends[each] for each in asked])
        self._ends[numbers[which[leads]]] = True

    def _expand(self, numbers: Numbers) -> None:
        for slot, chosen in self._steps.taken(numbers):
            for actor in range(self._system.actors):
                self._act(numbers[chosen], slot, actor)

    def _act(self, numbers: Numbers, slot: int, actor: int) -> None:
        """Follow one actor's fault-free steps from those of ``numbers`` that are still undecided."""
        numbers = numbers[~self._ends[numbers]]
        ways = self._system.ways(self._visited.rows(numbers), slot, actor, faults=False)
        whole = np.flatnonzero(ways.broken == 0)
        rows = self._system.canonical(ways.rows[whole])
        places, batches = self._exchange.to_owners(rows)
        answers = [self._ends[self._visited.find(came)] for (came,) in batches]
        leads = self._exchange.answered(places, answers)
        self._ends[numbers[ways.source[whole[leads]]]] = True
