"""Explicit-state search: every state that a system can reach, breadth first.

Two reductions make it smaller: symmetry (``canonical``) and partial order (``Search``). Why nothing is
lost is argued in docs/reference/checker.md.
"""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from fanin.sim.checker.protocol import FINISH, Violation
from fanin.sim.checker.system import Faults, System

HOLDS, BROKEN, NOT_PROVED = "holds", "broken", "not proved"
_BATCH = 1 << 12  # states between two looks at the clock
Progress = Callable[[int, int], None]  # gets the states seen and those still to expand


class Searched(Protocol):
    """A system that can be searched: any hashable states, and the ways on from each.

    Its events belong to ``slots``, those of one at a time may be an ample set. A way has the event's fields,
    the name first, and the state or Violation that it leads to.
    """

    @property
    def invariants(self) -> tuple[str, ...]:
        """All that is asked, FINISH among them."""

    @property
    def fault_names(self) -> Collection[str]:
        """Names of the events without which everything is to finish."""

    @property
    def slots(self) -> int:
        """How many there are; 1 where events are not told apart."""

    @property
    def start(self) -> Any:
        """The state at first."""

    def ways(self, state: Any, slot: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """What can happen to a slot."""

    def alone(self, state: Any) -> list[int]:
        """The slots whose events may be an ample set."""

    def canonical(self, state: Any) -> Any:
        """One of all states that are alike."""

    def done(self, state: Any) -> bool:
        """Everything is finished."""

    def event(self, fields: tuple[Any, ...]) -> Any:
        """An event as it is shown."""


@dataclass(frozen=True)
class Counterexample:
    """The events from the start to a broken invariant, and what the last one broke.

    ``shortest``: there is no shorter way that breaks no other invariant first.
    """

    events: tuple[Any, ...]
    what: str
    shortest: bool


@dataclass
class Outcome:
    """What a search found; ``counterexamples`` has a way to break each invariant that is broken.

    ``depth`` counts the events from the start to the state that was expanded last.
    """

    invariants: tuple[str, ...]
    states: int = 0
    seconds: float = 0.0
    depth: int = 0
    exhausted: bool = False
    finishes: bool = False  #: FINISH was asked for apart, and holds
    counterexamples: dict[str, Counterexample] = field(default_factory=dict)

    def holds(self, invariant: str) -> bool | None:
        """Whether an invariant holds; None if the search has not shown it.

        What breaks another invariant goes no further, so that everything finishes is not shown then.
        """
        if invariant in self.counterexamples:
            return False
        shown = self.exhausted and (invariant != FINISH or self.finishes or not self.counterexamples)
        return True if shown else None

    @property
    def status(self) -> str:
        """``BROKEN`` if one invariant is, ``HOLDS`` if all hold, else ``NOT_PROVED``."""
        if self.counterexamples:
            return BROKEN
        return HOLDS if all(map(self.holds, self.invariants)) else NOT_PROVED


def check(
    system: System,
    *,
    seconds: float,
    all_invariants: bool = True,
    reduced: bool = True,
    progress: Progress = lambda states, waiting: None,
) -> Outcome:
    """Search ``system``; ask for FINISH apart where something else is broken and the protocol can go on.

    The second search allows one loss, if ``system`` does, and no other fault: that is enough for a protocol
    that hangs. Parameters as for ``Search`` and its ``run``.
    """
    outcome = Search(system, reduced=reduced).run(
        seconds=seconds, all_invariants=all_invariants, progress=progress
    )
    unjudged, left = system.protocol.unjudged, seconds - outcome.seconds
    if outcome.counterexamples and all_invariants and unjudged and left > 0:
        losses = min(1, system.faults.losses, system.faults.together)
        apart = System(unjudged, Faults(losses=losses, together=losses))
        second = Search(apart, reduced=reduced).run(seconds=left, progress=progress)
        same = apart.faults == system.faults
        outcome.seconds += second.seconds
        outcome.finishes = same and second.status == HOLDS
        for invariant, way in second.counterexamples.items():  # with other faults there may be a shorter one
            outcome.counterexamples[invariant] = dataclasses.replace(way, shortest=way.shortest and same)
    return outcome


class Search:
    """A breadth-first search from ``system.start``.

    With ``reduced`` it is a partial-order reduction by ample sets: where no other slot can give a slot a new
    event (``alone``), the events of that slot are the ample set, and those of the others are put off.
    The cycle proviso keeps them from being put off for ever: an event of the set that is no fault must lead to
    a state that is still to be expanded, or is fully expanded, that is, with the events of all slots.
    """

    def __init__(self, system: Searched, *, reduced: bool = True):
        self.system, self.reduced = system, reduced
        self._states = [system.start]
        self._numbers = {system.start: 0}
        self._parents = array("q", [-1])
        self._expanded = 0
        self._from, self._to = array("i"), array("i")  # the ways that need no fault
        self._fully_expanded: set[int] = set()
        self._put_off = False  # whether events of a slot ever were
        self._outcome = Outcome(system.invariants)

    def run(
        self,
        *,
        seconds: float = 600.0,
        all_invariants: bool = False,
        progress: Progress = lambda states, waiting: None,
    ) -> Outcome:
        """Explore until nothing is new, an invariant is broken, or ``seconds`` are over.

        A broken invariant ends its path; with ``all_invariants`` the search goes on beside it. ``progress``
        gets the states seen and those still to expand, now and then.
        """
        began, outcome = time.monotonic(), self._outcome
        self._explore(began + seconds, all_invariants, progress)
        outcome.states, outcome.seconds = len(self._states), time.monotonic() - began
        outcome.depth = len(self._path(self._expanded - 1)) - 1
        return outcome

    def _explore(self, end: float, all_invariants: bool, progress: Progress) -> None:
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
        """Expand a state: with the first ample slot that meets the proviso, or else fully."""
        state, slots = self._states[number], range(self.system.slots)
        alone = self.system.alone(state) if self.reduced else []
        *first, last = (*alone, *(slot for slot in slots if slot not in alone))
        for slot in first:
            if self._expand_slot(number, slot) and slot in alone:
                self._put_off = True
                break
        else:
            self._expand_slot(number, last)
            self._fully_expanded.add(number)
        self._expanded += 1

    def _expand_slot(self, number: int, slot: int) -> bool:
        """Take the slot's events; whether they meet the cycle proviso, so that no slot is put off for ever.

        They do if one that is no fault leads to a state that is still to be expanded, or is fully expanded.
        """
        system, states, numbers = self.system, self._states, self._numbers
        proviso = False
        for fields, after in system.ways(states[number], slot):
            if isinstance(after, Violation):
                self._note(after, number)
                continue
            target = numbers.get(after, -1)
            if target < 0:
                canonical = system.canonical(after)
                target = numbers.setdefault(canonical, len(states))
                if target == len(states):
                    states.append(canonical)
                    self._parents.append(number)
                numbers[after] = target  # so that it need not be renamed again
            if fields[0] not in system.fault_names:
                self._from.append(number)
                self._to.append(target)
                proviso = proviso or target > number or target in self._fully_expanded
        return proviso

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
            self._note(
                Violation(FINISH, "from here the end is out of reach"), int(np.argmax(stuck)), at_the_end=True
            )

    def _note(self, violation: Violation, number: int, *, at_the_end: bool = False) -> None:
        if violation.invariant in self._outcome.counterexamples:
            return
        events, state = self._retrace(self._path(number))
        if not at_the_end:
            # The state may have other names than the one that was expanded; its violation is of the same kind.
            last, violation = next(
                (last, after)
                for last, after in self._ways(state)
                if isinstance(after, Violation) and after.invariant == violation.invariant
            )
            events.append(self.system.event(last))
        found = Counterexample(tuple(events), str(violation), shortest=not self._put_off)
        self._outcome.counterexamples[violation.invariant] = found

    def _path(self, number: int) -> list[Any]:
        """The states from the start to the state of this number."""
        path = [number]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        return [self._states[at] for at in reversed(path)]

    def _ways(self, state: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        for slot in range(self.system.slots):
            yield from self.system.ways(state, slot)

    def _retrace(self, path: list[Any]) -> tuple[list[Any], Any]:
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
