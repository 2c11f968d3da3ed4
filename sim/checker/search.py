"""Explicit-state search of every state that a system can reach, breadth first, in one process or several.

Two reductions make the search smaller: symmetry (``canonical``) and partial order (``Search``).
docs/reference/checker.md proves that nothing is lost, and shows how processes share the states.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.finish import FinishCheck, OutOfTime
from fanin.sim.checker.group import Group, group_of
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.retrace import Mark, Retrace
from fanin.sim.checker.steps import SlotFlags, Steps
from fanin.sim.checker.system import Faults, Searchable, System, Transitions
from fanin.sim.checker.tables import Flags, Numbers, Rows, fingerprints
from fanin.sim.checker.visited import ALL_SLOTS, NO_SUCCESSOR, VisitedStates

HOLDS, BROKEN, NOT_PROVED = "holds", "broken", "not proved"
#: Code of a state that meets the cycle proviso (see ``Search``) although it is not in the next level: a later
#: state of the same level, or a fully expanded state of an earlier one. Above the codes of all states of the
#: next level.
_LATER = NO_SUCCESSOR - np.uint32(1)
_BATCH = 1 << 13  # states that a process expands between two exchanges
Progress = Callable[[int, int], None]  # called with the number of states seen and of states still to expand


@dataclass(frozen=True)
class Counterexample:
    """Events from the start to a broken invariant.

    - ``violation``: description of what the last event broke.
    - ``shortest``: no shorter path breaks the invariant without breaking another one first.
    """

    events: tuple[Any, ...]
    violation: str
    shortest: bool


@dataclass
class Outcome:
    """Result of a search.

    - ``invariants``: invariants that were checked.
    - ``states``: number of visited states, in all processes.
    - ``seconds``: duration of the search.
    - ``depth``: number of events from the start to the states that were expanded last.
    - ``exhausted``: every reachable state was expanded.
    - ``counterexamples``: one per broken invariant.
    """

    invariants: tuple[str, ...]
    states: int = 0
    seconds: float = 0.0
    depth: int = 0
    exhausted: bool = False
    finishes: bool = False  #: FINISH was checked, in this search or a separate one, and holds
    counterexamples: dict[str, Counterexample] = field(default_factory=dict)

    def holds(self, invariant: str) -> bool | None:
        """Return whether an invariant holds; None if the search has not shown it.

        FINISH is not shown if another invariant is broken, since a path ends where it breaks one.
        """
        if invariant in self.counterexamples:
            return False
        proved = self.finishes if invariant == FINISH else self.exhausted
        return True if proved else None

    @property
    def status(self) -> str:
        """``BROKEN`` if an invariant is broken, ``HOLDS`` if all hold, otherwise ``NOT_PROVED``."""
        if self.counterexamples:
            return BROKEN
        return HOLDS if all(map(self.holds, self.invariants)) else NOT_PROVED


def check(
    system: System,
    *,
    seconds: float,
    all_invariants: bool = True,
    reduced: bool = True,
    processes: int = 1,
    progress: Progress = lambda states, waiting: None,
) -> Outcome:
    """Search ``system``. If an invariant is broken, check FINISH in a second search if the protocol allows it.

    The second search continues after violations (``ProtocolModel.without_checks``). It allows one loss, if
    ``system`` does, and no other fault: a protocol that can hang does so after one loss. Parameters as for
    ``search``.
    """
    common: dict[str, Any] = {"reduced": reduced, "processes": processes, "progress": progress}
    outcome = search(system, seconds=seconds, all_invariants=all_invariants, **common)
    without_checks, seconds_left = system.protocol.without_checks, seconds - outcome.seconds
    if outcome.counterexamples and all_invariants and without_checks and seconds_left > 0:
        losses = min(1, system.faults.losses, system.faults.together)
        finish_system = System(without_checks, Faults(losses=losses, together=losses))
        finish_outcome = search(finish_system, seconds=seconds_left, all_invariants=False, **common)
        same_faults = finish_system.faults == system.faults
        outcome.seconds += finish_outcome.seconds
        outcome.finishes = same_faults and finish_outcome.status == HOLDS
        for invariant, example in finish_outcome.counterexamples.items():
            shortest = example.shortest and same_faults  # with other faults, a shorter one may exist
            outcome.counterexamples[invariant] = dataclasses.replace(example, shortest=shortest)
    return outcome


def search(
    system: Searchable,
    *,
    seconds: float = 600.0,
    all_invariants: bool = False,
    reduced: bool = True,
    processes: int = 1,
    progress: Progress = lambda states, waiting: None,
) -> Outcome:
    """Search ``system`` until no state is new, an invariant is broken, or ``seconds`` are over.

    A path ends at a broken invariant; with ``all_invariants`` other paths are explored further. ``progress`` is
    called after each batch with the number of states seen and of states still to expand. The result does not
    depend on ``processes``, except if ``seconds`` ends the search. Raises CheckFailed when a process dies.
    """

    def work(group: Group) -> Outcome:
        report = progress if not group.rank else (lambda states, waiting: None)
        return Search(system, reduced=reduced, group=group).run(
            seconds=seconds, all_invariants=all_invariants, progress=report
        )

    with group_of(processes, work) as group:
        return work(group)


class Search:
    """One process's share of a breadth-first search from ``system.start``.

    With ``reduced`` the search uses partial-order reduction by ample sets. If no other slot can give a slot a
    new event (``alone``), that slot's events are the ample set, and events of the other slots are postponed.

    The cycle proviso prevents that events are postponed for ever. A fault-free event of the set must lead to a
    later state (by level, then by fingerprint), or to a fully expanded state of an earlier level. A state is
    fully expanded if all its slots' events were followed. Neither condition depends on the number of processes,
    so the result does not either.
    """

    def __init__(self, system: Searchable, *, reduced: bool = True, group: Group | None = None):
        self.system, self.reduced = system, reduced and system.slots > 1
        self._group = group or Group()
        self.visited = VisitedStates(system.columns, ranks=self._group.size)
        self._exchange = RowExchange(self._group, system.columns)
        self._steps = Steps(system, self.visited)
        self._retrace = Retrace(self._steps, self._exchange, self._group)
        self._postponed = False  # whether a slot's events were ever postponed
        self._violations: dict[str, Mark] = {}  # in this level, per invariant: the least state that breaks it
        self._outcome = Outcome(system.invariants)

    def run(
        self,
        *,
        seconds: float = 600.0,
        all_invariants: bool = False,
        progress: Progress = lambda states, waiting: None,
    ) -> Outcome:
        """Explore in step with the group's other processes; parameters as for ``search``."""
        start, outcome = time.monotonic(), self._outcome
        self._deadline, self._progress = start + seconds, progress
        outcome.exhausted = self._explore(all_invariants)
        if outcome.exhausted and not outcome.counterexamples:
            self._check_that_all_finish()
        outcome.states = sum(self._group.gather(len(self.visited)))
        outcome.seconds = time.monotonic() - start
        return outcome

    def _explore(self, all_invariants: bool) -> bool:
        """Expand level by level; return whether no state is left to expand."""
        self._visit_start()
        while True:
            self.visited.next_level()
            self._outcome.depth = self.visited.depth
            waiting, timed_out = self._expand_level()
            self._note_counterexamples()
            if not waiting:
                return True
            if timed_out or (self._outcome.counterexamples and not all_invariants):
                return False

    def _expand_level(self) -> tuple[int, bool]:
        """Expand the level in batches, in step with the other processes, until its end or the deadline.

        Return the results of ``_report`` after the last batch. No batch is left to expand if no process has a
        state in the level.
        """
        visited, frontier = self.visited, self.visited.numbers(self.visited.depth)
        waiting, timed_out = 0, False
        for part in chunks(max(self._group.gather(len(frontier))), _BATCH):
            self._expand(frontier[part])
            waiting_here = len(frontier[part.stop :]) + len(visited) - visited.frontier.stop
            waiting, timed_out = self._report(waiting_here)
            if timed_out:
                break
        return waiting, timed_out

    def _report(self, waiting_here: int) -> tuple[int, bool]:
        """Report progress; return the number of states to expand in all processes, and whether time is over."""
        counts = len(self.visited), waiting_here, time.monotonic() > self._deadline and not self._group.rank
        visited, waiting, timed_out = zip(*self._group.gather(counts), strict=True)
        self._progress(sum(visited), sum(waiting))
        return sum(waiting), any(timed_out)

    def _visit_start(self) -> None:
        start = self.system.canonical(self.system.start[None])
        self.visited.add(start[self._exchange.owners(start) == self._group.rank])

    def _expand(self, numbers: Numbers) -> None:
        """Expand each state with its first ample slot that meets the proviso, or else fully."""
        slots = range(self.system.slots)
        expanded = np.zeros((len(numbers), len(slots)), bool)
        expansions = np.full(len(numbers), ALL_SLOTS, np.int8)
        if self.reduced:
            independent = self.system.independent_slots(self.visited.rows(numbers))
            for slot in slots:
                candidates = (expansions == ALL_SLOTS) & independent[:, slot]
                meets_proviso = self._expand_slots(numbers, [(slot, candidates)], check_proviso=True)
                expansions[meets_proviso] = slot
                expanded[:, slot] = candidates
        undecided = expansions == ALL_SLOTS
        self._expand_slots(numbers, [(slot, undecided & ~expanded[:, slot]) for slot in slots])
        expansions[expanded.all(axis=1)] = ALL_SLOTS
        self.visited.expanded_by[numbers] = expansions
        self._postponed |= bool((expansions != ALL_SLOTS).any())

    def _expand_slots(self, numbers: Numbers, slots: SlotFlags, *, check_proviso: bool = False) -> Flags:
        """Expand states by the events of ``slots``; with ``check_proviso``, return which meet the proviso.

        A state meets the proviso if a fault-free event leads to a later state, or to a fully expanded state of
        an earlier level. States are ordered by level, then by fingerprint. No slot is then postponed for ever.
        """
        transitions = self._valid_transitions(numbers, slots)
        source_fingerprints = []
        if check_proviso:
            marks = fingerprints(self.system.columns, self.visited.rows(numbers))
            source_fingerprints.append(marks[transitions.source])
        places, batches = self._exchange.to_owners(transitions.rows, *source_fingerprints)
        visited = self._visit(*map(np.concatenate, zip(*batches, strict=True)))
        ends = np.cumsum([len(rows) for rows, *_ in batches])[:-1]
        successor_codes = self._exchange.return_answers(places, np.split(visited, ends))
        # Codes in order: states of the next level, _LATER, NO_SUCCESSOR.
        in_next_level = ~transitions.faults & (successor_codes < _LATER)
        later = ~transitions.faults & (successor_codes != NO_SUCCESSOR)
        self.visited.successor[numbers[transitions.source[in_next_level]]] = successor_codes[in_next_level]
        meets_proviso = np.zeros(len(numbers), bool)
        meets_proviso[transitions.source[later]] = True
        return meets_proviso

    def _visit(self, rows: Rows, source_fingerprints: NDArray[np.uint64] | None = None) -> NDArray[np.uint32]:
        """Visit states; return ``VisitedStates.successor`` codes, or NO_SUCCESSOR outside the next level.

        With ``source_fingerprints``, return _LATER for states of this level whose fingerprint is above that of
        the state they come from, and for fully expanded states of earlier levels.
        """
        visited, level = self.visited, self.visited.frontier
        numbers = visited.add(rows)
        successor_codes = numbers.astype(np.uint32) * np.uint32(self._group.size) + np.uint32(self._group.rank)
        earlier = np.flatnonzero(numbers < level.stop)
        successor_codes[earlier] = NO_SUCCESSOR
        if source_fingerprints is not None:
            number = numbers[earlier]
            above_source = fingerprints(self.system.columns, rows[earlier]) > source_fingerprints[earlier]
            later = np.where(number < level.start, visited.expanded_by[number] == ALL_SLOTS, above_source)
            successor_codes[earlier[later]] = _LATER
        return successor_codes

    def _valid_transitions(self, numbers: Numbers, slots: SlotFlags) -> Transitions:
        """Return the steps that break no invariant; note the violations of the others."""
        transitions = self._steps.transitions(numbers, slots)
        valid = transitions.violations == 0
        if valid.all():
            return transitions
        self._note(numbers[transitions.source[~valid]], transitions.violations[~valid])
        return transitions.only(valid)

    def _check_that_all_finish(self) -> None:
        """Check that from every state a fault-free path leads to the end; note a counterexample."""

        def has_time(waiting_here: int) -> bool:
            return not self._report(waiting_here)[1]

        try:
            stuck = FinishCheck(self._steps, self._exchange, self._group, has_time=has_time).stuck()
        except OutOfTime:
            return
        levels = [self.visited.level_of(int(number)) for number in stuck[:1]]
        first = stuck[: np.searchsorted(stuck, self.visited.level(levels[0]).stop)] if levels else stuck
        shallowest = [(level, self._retrace.least_mark(first)) for level in levels]
        candidates = list(itertools.chain(*self._group.gather(shallowest)))
        self._outcome.finishes = not candidates
        if candidates:
            events, _ = self._retrace.events(min(candidates)[1])
            self._add_counterexample(FINISH, events, "from here the end is out of reach")

    def _note(self, numbers: Numbers, violations: Numbers) -> None:
        for number in np.unique(violations).tolist():
            invariant, _ = self.system.violations.values[number]
            mark = self._retrace.least_mark(numbers[violations == number])
            self._violations[invariant] = min(mark, self._violations.get(invariant, mark))

    def _note_counterexamples(self) -> None:
        """Note a counterexample for each invariant that this level broke first, from the least state."""
        violations, postponed = zip(*self._group.gather((self._violations, self._postponed)), strict=True)
        self._violations, self._postponed = {}, any(postponed)
        for invariant in self.system.invariants:
            candidates = [marks[invariant] for marks in violations if invariant in marks]
            if candidates and invariant not in self._outcome.counterexamples:
                events, state = self._retrace.events(min(candidates))
                # Workers' names may differ from those of the expanded state; the invariant is the same.
                event, description = next(
                    (event, description)
                    for event, _, violation in self._steps.successors(state)
                    for broken, description in [violation or (None, "")]
                    if broken == invariant
                )
                self._add_counterexample(invariant, [*events, event], description)

    def _add_counterexample(self, invariant: str, events: list[Any], violation: str) -> None:
        counterexample = Counterexample(tuple(events), violation, shortest=not self._postponed)
        self._outcome.counterexamples[invariant] = counterexample
