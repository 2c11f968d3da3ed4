"""Explicit-state search: every state that a system can reach, breadth first."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from fanin.sim.checker.protocol import FINISH, Violation
from fanin.sim.checker.system import FAULTS, Event, Fields, State, System, Way

_BATCH = 1 << 12  # states between two looks at the clock


@dataclass(frozen=True)
class Counterexample:
    """The events from the start to a broken invariant, and what the last one broke."""

    events: tuple[Event, ...]
    what: str


@dataclass
class Outcome:
    """What a search found; ``counterexamples`` has, per invariant, the shortest way to break it."""

    states: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    counterexamples: dict[str, Counterexample] = field(default_factory=dict)

    def holds(self, invariant: str) -> bool | None:
        """Whether an invariant holds; None if the search has not shown it.

        That everything finishes is asked for only where nothing else is broken.
        """
        if invariant in self.counterexamples:
            return False
        shown = self.exhausted and (invariant != FINISH or not self.counterexamples)
        return True if shown else None


class Search:
    """A breadth-first search from ``system.start``.

    With ``reduced`` a state is left by the events of one slot only, where that is enough: if no other slot can
    give that one a new way on, its events may as well come first, for events of different slots change nothing
    for each other. One of them must lead to a state yet to be expanded, lest the others be put off for ever.
    """

    def __init__(self, system: System, *, reduced: bool = True):
        self.system, self.reduced = system, reduced
        self._states = [system.start]
        self._numbers = {system.start: 0}
        self._parents = array("q", [-1])
        self._expanded = 0
        self._from, self._to = array("i"), array("i")  # the ways that need no fault
        self._outcome = Outcome()

    def run(
        self,
        *,
        seconds: float = 600.0,
        all_invariants: bool = False,
        progress: Callable[[int, int], None] = lambda states, waiting: None,
    ) -> Outcome:
        """Explore until nothing is new, an invariant is broken, or ``seconds`` are over.

        A broken invariant ends its path; with ``all_invariants`` the search goes on beside it. ``progress``
        gets the states seen and those still to expand, now and then.
        """
        began, outcome = time.monotonic(), self._outcome
        self._explore(began + seconds, all_invariants, progress)
        outcome.states, outcome.seconds = len(self._states), time.monotonic() - began
        return outcome

    def _explore(self, end: float, all_invariants: bool, progress: Callable[[int, int], None]) -> None:
        outcome = self._outcome
        while self._expanded < len(self._states):
            for number in range(self._expanded, min(self._expanded + _BATCH, len(self._states))):
                self._expand(number)
                if outcome.counterexamples and not all_invariants:
                    break
            progress(len(self._states), len(self._states) - self._expanded)
            if time.monotonic() > end or (outcome.counterexamples and not all_invariants):
                break
        else:
            outcome.exhausted = True
            if not outcome.counterexamples:
                self._check_that_all_finish()

    def _expand(self, number: int) -> None:
        state, slots = self._states[number], range(self.system.protocol.slots)
        alone = self.system.alone(state) if self.reduced else []
        for slot in (*alone, *(slot for slot in slots if slot not in alone)):
            if self._expand_slot(number, slot) > number and slot in alone:
                break
        self._expanded += 1

    def _expand_slot(self, number: int, slot: int) -> int:
        """The last found of the states that the slot's events lead to."""
        system, states, numbers = self.system, self._states, self._numbers
        last = 0
        for fields, after in system.ways(states[number], slot):
            if isinstance(after, Violation):
                self._note(after, number, fields)
                continue
            known = numbers.get(after, -1)
            if known < 0:
                named = system.canonical(after)
                known = numbers.setdefault(named, len(states))
                if known == len(states):
                    states.append(named)
                    self._parents.append(number)
                numbers[after] = known  # so that it need not be renamed again
            if fields[0] not in FAULTS:
                self._from.append(number)
                self._to.append(known)
            last = max(last, known)
        return last

    def _check_that_all_finish(self) -> None:
        """From every state a way without faults leads to the end."""
        count = len(self._states)
        done = np.array(
            [number for number, state in enumerate(self._states) if self.system.done(state)], dtype=int
        )
        ends = np.concatenate([np.frombuffer(self._to, dtype=np.int32), np.full(len(done), count)])
        begins = np.concatenate([np.frombuffer(self._from, dtype=np.int32), done])
        back = sparse.csr_matrix(
            (np.ones(len(ends), dtype=np.int8), (ends, begins)), shape=(count + 1, count + 1)
        )
        finishing = csgraph.breadth_first_order(back, count, return_predecessors=False)
        stuck = np.ones(count + 1, dtype=bool)
        stuck[finishing] = False
        if stuck.any():
            self._note(Violation(FINISH, "from here the end is out of reach"), int(np.argmax(stuck)))

    def _note(self, violation: Violation, number: int, fields: Fields | None = None) -> None:
        if violation.invariant in self._outcome.counterexamples:
            return
        path = [number]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        events, state = self._retrace([self._states[at] for at in reversed(path)])
        if fields:
            # The state may have other names than the one that was expanded; its violation is of the same kind.
            events += [
                self.system.event(last)
                for last, after in self._ways(state)
                if isinstance(after, Violation) and after.invariant == violation.invariant
            ][:1]
        what = str(violation)
        self._outcome.counterexamples[violation.invariant] = Counterexample(tuple(events), what)

    def _ways(self, state: State) -> Iterator[Way]:
        for slot in range(self.system.protocol.slots):
            yield from self.system.ways(state, slot)

    def _retrace(self, path: list[State]) -> tuple[list[Event], State]:
        """The events along canonical states, all by the names that the workers have at the start."""
        system, state, events = self.system, path[0], []
        for target in path[1:]:
            fields, state = next(
                (fields, after)
                for fields, after in self._ways(state)
                if not isinstance(after, Violation) and system.canonical(after) == target
            )
            events.append(system.event(fields))
        return events, state
