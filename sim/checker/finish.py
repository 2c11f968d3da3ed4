"""Check of the invariant FINISH: from every visited state, a fault-free path leads to the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.steps import Steps
from fanin.sim.checker.tables import Numbers
from fanin.sim.checker.visited import NO_SUCCESSOR

_BATCH = 1 << 16  # states that a process handles between two exchanges


class OutOfTime(Exception):
    """The time of the search ended before FINISH was proved or broken."""


class FinishCheck:
    """Backward search for states from which the end is out of reach, in step with the group's other processes.

    All successors would take more memory than the states themselves. The search therefore keeps one fault-free
    successor in the next level per state, and ``stuck`` follows these backwards. Other successors are computed
    again: first those of states without a kept successor, which are few; then, if still undecided states
    remain, those of all undecided states.

    ``has_time`` is called with the number of states to expand in this pass. If it returns False, the search
    raises OutOfTime.
    """

    def __init__(self, steps: Steps, exchange: RowExchange, group: Group, *, has_time: Callable[[int], bool]):
        self._steps, self._exchange, self._group, self._has_time = steps, exchange, group, has_time
        self._system, self._visited = steps.system, steps.visited
        self._finishes = np.zeros(len(self._visited), bool)  # states known to reach the end

    def stuck(self) -> Numbers:
        """Return this process's states from which the end cannot be reached. Raises OutOfTime."""
        for part in chunks(len(self._finishes), _BATCH):
            self._finishes[part] = self._system.done(self._visited.rows(part))
        self._follow_back()
        while self._decide_more(deeper=False) or self._decide_more(deeper=True):
            self._follow_back()
        return np.flatnonzero(~self._finishes).astype(np.int32)

    def _follow_back(self) -> None:
        """Follow the kept successors backwards, from the deepest level."""
        levels = range(self._visited.depth + 1)
        spans = map(self._visited.level, levels)
        unknown = [int(np.count_nonzero(~self._finishes[span.start : span.stop])) for span in spans]
        self._check_time(sum(unknown))
        maximum = np.max(self._group.gather(unknown), axis=0)
        for level in reversed(levels):
            if maximum[level]:
                numbers = self._visited.numbers(level)
                numbers = numbers[~self._finishes[numbers]]
                for part in chunks(maximum[level], _BATCH):
                    self._follow(numbers[part])

    def _decide_more(self, *, deeper: bool) -> bool:
        """Expand undecided states; return whether any was decided.

        ``deeper``: expand also states with a kept successor.
        """
        decided = sum(self._group.gather(int(self._finishes.sum())))
        undecided = ~self._finishes if deeper else ~self._finishes & (self._visited.successor == NO_SUCCESSOR)
        numbers = np.flatnonzero(undecided)[::-1].astype(np.int32)
        for part in chunks(max(self._group.gather(len(numbers))), _BATCH):
            self._check_time(len(numbers[part.start :]))
            self._expand(numbers[part])
        return sum(self._group.gather(int(self._finishes.sum()))) > decided

    def _check_time(self, waiting: int) -> None:
        if not self._has_time(waiting):
            raise OutOfTime

    def _follow(self, numbers: Numbers) -> None:
        """Mark states whose kept successor reaches the end."""
        successor_codes = self._visited.successor[numbers]
        followed = np.flatnonzero(successor_codes != NO_SUCCESSOR)
        successors, rank = np.divmod(successor_codes[followed], np.uint32(self._group.size))
        places = [np.flatnonzero(rank == r) for r in range(self._group.size)]
        queries = self._group.exchange([successors[indices] for indices in places])
        leads = self._exchange.return_answers(places, [self._finishes[query] for query in queries])
        self._finishes[numbers[followed[leads]]] = True

    def _expand(self, numbers: Numbers) -> None:
        for slot, expanded in self._steps.expanded_slots(numbers):
            for actor in range(self._system.actors):
                self._act(numbers[expanded], slot, actor)

    def _act(self, numbers: Numbers, slot: int, actor: int) -> None:
        """Follow one actor's fault-free steps from those of ``numbers`` that are still undecided."""
        numbers = numbers[~self._finishes[numbers]]
        transitions = self._system.transitions(self._visited.rows(numbers), slot, actor, faults=False)
        valid = np.flatnonzero(transitions.violations == 0)
        rows = self._system.canonical(transitions.rows[valid])
        places, batches = self._exchange.to_owners(rows)
        answers = [self._finishes[self._visited.find(received)] for (received,) in batches]
        leads = self._exchange.return_answers(places, answers)
        self._finishes[numbers[transitions.source[valid[leads]]]] = True
