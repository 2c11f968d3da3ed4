"""Whether everything finishes: from which states a way without faults leads to the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.steps import Steps
from fanin.sim.checker.tables import Numbers
from fanin.sim.checker.visited import NOWHERE

_BATCH = 1 << 16  # states that a process looks at between two exchanges


class OutOfTime(Exception):
    """The question is not answered."""


class Finish:
    """Asks from which visited states the end can be reached, in step with the group's other processes.

    All ways on would take more memory than the states. So the search keeps one of a state, to the next level,
    and these are followed back. Other ways are computed again: those of states that lead no deeper, which are
    few, and of all others only where nothing else helps. ``on`` gets how many states are still to be looked at
    in this round, and says whether to go on.
    """

    def __init__(self, steps: Steps, exchange: RowExchange, group: Group, *, on: Callable[[int], bool]):
        self._steps, self._exchange, self._group, self._on = steps, exchange, group, on
        self._system, self._visited = steps.system, steps.visited
        self._ends = np.zeros(len(self._visited), bool)  # those that are known to reach the end

    def stuck(self) -> Numbers:
        """The states here from which the end cannot be reached. Raises OutOfTime."""
        for part in chunks(len(self._ends), _BATCH):
            self._ends[part] = self._system.done(self._visited.rows(part))
        self._follow_back()
        while self._learns(deeper=False) or self._learns(deeper=True):
            self._follow_back()
        return np.flatnonzero(~self._ends).astype(np.int32)

    def _follow_back(self) -> None:
        """The ways that were kept, from the deepest level."""
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
        """Expand the states of which nothing is known, those too that lead ``deeper``; whether that helps."""
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
        """What is known of the states of the next level to which these lead."""
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
        """One actor's ways without faults, from those of these states of which nothing is known yet."""
        numbers = numbers[~self._ends[numbers]]
        ways = self._system.ways(self._visited.rows(numbers), slot, actor, faults=False)
        whole = np.flatnonzero(ways.broken == 0)
        rows = self._system.canonical(ways.rows[whole])
        places, batches = self._exchange.to_owners(rows)
        answers = [self._ends[self._visited.find(came)] for (came,) in batches]
        leads = self._exchange.answered(places, answers)
        self._ends[numbers[ways.source[whole[leads]]]] = True
