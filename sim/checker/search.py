"""Explicit-state search: every state that a system can reach, breadth first, in one process or several.

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
from fanin.sim.checker.finish import Finish, OutOfTime
from fanin.sim.checker.group import Group, group_of
from fanin.sim.checker.packing import chunks
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.retrace import Mark, Retrace
from fanin.sim.checker.steps import Chosen, Steps
from fanin.sim.checker.system import Faults, Searched, System, Ways
from fanin.sim.checker.tables import Flags, Numbers, Rows, fingerprints
from fanin.sim.checker.visited import NOWHERE, WHOLLY, Visited

HOLDS, BROKEN, NOT_PROVED = "holds", "broken", "not proved"
_LATER = NOWHERE - np.uint32(1)
_BATCH = 1 << 13  # states that a process expands between two exchanges
Progress = Callable[[int, int], None]  # called with the number of states seen and of states still to expand


@dataclass(frozen=True)
class Counterexample:
    """The events from the start to a broken invariant, and ``what`` the last event broke.

    ``shortest``: no shorter path breaks the invariant without breaking another one first.
    """

    events: tuple[Any, ...]
    what: str
    shortest: bool


@dataclass
class Outcome:
    """Result of a search; ``counterexamples`` has one counterexample per broken invariant.

    ``depth``: number of events from the start to the states that were expanded last.
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
        shown = self.finishes if invariant == FINISH else self.exhausted
        return True if shown else None

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

    The second search continues after violations (``ProtocolModel.unjudged``). It allows one loss, if ``system``
    does, and no other fault: a protocol that can hang does so after one loss. Parameters as for ``search``.
    """
    common: dict[str, Any] = {"reduced": reduced, "processes": processes, "progress": progress}
    outcome = search(system, seconds=seconds, all_invariants=all_invariants, **common)
    unjudged, left = system.protocol.unjudged, seconds - outcome.seconds
    if outcome.counterexamples and all_invariants and unjudged and left > 0:
        losses = min(1, system.faults.losses, system.faults.together)
        apart = System(unjudged, Faults(losses=losses, together=losses))
        second = search(apart, seconds=left, all_invariants=False, **common)
        same = apart.faults == system.faults
        outcome.seconds += second.seconds
        outcome.finishes = same and second.status == HOLDS
        for invariant, way in second.counterexamples.items():  # with other faults, a shorter one may exist
            outcome.counterexamples[invariant] = dataclasses.replace(way, shortest=way.shortest and same)
    return outcome


def search(
    system: Searched,
    *,
    seconds: float = 600.0,
    all_invariants: bool = False,
    reduced: bool = True,
    processes: int = 1,
    progress: Progress = lambda states, waiting: None,
) -> Outcome:
    """Explore until no state is new, an invariant is broken, or ``seconds`` are over.

    A path ends at a broken invariant; with ``all_invariants`` other paths are explored further. ``progress`` is
    called after each batch with the number of states seen and of states still to expand. The result does not
    depend on ``processes``, except if ``seconds`` ends the search. Raises CheckFailed when a process dies.
    """

    def work(group: Group) -> Outcome:
        said = progress if not group.rank else (lambda states, waiting: None)
        return Search(system, reduced=reduced, group=group).run(
            seconds=seconds, all_invariants=all_invariants, progress=said
        )

    with group_of(processes, work) as group:
        return work(group)


class Search:
    """One process's share of a breadth-first search from ``system.start``.

    With ``reduced`` the search uses partial-order reduction by ample sets. If no other slot can give a slot a
    new event (``alone``), that slot's events are the ample set, and events of the other slots are postponed.

    The cycle proviso prevents that events are postponed for ever. A fault-free event of the set must lead to a
    state that is later than this one, by level and then by fingerprint, or to a fully expanded state (with the
    events of all slots) of an earlier level. Neither depends on the number of processes, so the result does not
    either.
    """

    def __init__(self, system: Searched, *, reduced: bool = True, group: Group | None = None):
        self.system, self.reduced = system, reduced and system.slots > 1
        self._group = group or Group()
        self.visited = Visited(system.columns, ranks=self._group.size)
        self._exchange = RowExchange(self._group, system.columns)
        self._steps = Steps(system, self.visited)
        self._retrace = Retrace(self._steps, self._exchange, self._group)
        self._put_off = False  # whether a slot's events were ever postponed
        self._broken: dict[str, Mark] = {}  # in this level, per invariant: the least state that breaks it
        self._outcome = Outcome(system.invariants)

    def run(
        self,
        *,
        seconds: float = 600.0,
        all_invariants: bool = False,
        progress: Progress = lambda states, waiting: None,
    ) -> Outcome:
        """Explore in step with the group's other processes; parameters as for ``search``."""
        began, outcome = time.monotonic(), self._outcome
        self._end, self._progress = began + seconds, progress
        outcome.exhausted = self._explore(all_invariants)
        if outcome.exhausted and not outcome.counterexamples:
            self._check_that_all_finish()
        outcome.states = sum(self._group.gather(len(self.visited)))
        outcome.seconds = time.monotonic() - began
        return outcome

    def _explore(self, all_invariants: bool) -> bool:
        """Expand level by level; return whether no state is left to expand."""
        visited, outcome = self.visited, self._outcome
        self._visit_start()
        for outcome.depth in itertools.count():
            visited.next_level()
            frontier = visited.numbers(outcome.depth)
            for part in chunks(max(self._group.gather(len(frontier))), _BATCH):
                self._expand(frontier[part])
                left = len(frontier[part.stop :]) + len(visited) - visited.frontier.stop
                waiting, over = self._tell(left)
                if over:
                    break
            self._note_broken()
            if not waiting:
                return True
            if over or (outcome.counterexamples and not all_invariants):
                return False
        raise AssertionError("itertools.count ends")

    def _tell(self, left: int) -> tuple[int, bool]:
        """Report progress; return the states left in all processes (``left`` here), and if time is over."""
        here = len(self.visited), left, time.monotonic() > self._end and not self._group.rank
        seen, waiting, over = zip(*self._group.gather(here), strict=True)
        self._progress(sum(seen), sum(waiting))
        return sum(waiting), any(over)

    def _visit_start(self) -> None:
        start = self.system.canonical(self.system.start[None])
        self.visited.add(start[self._exchange.owners(start) == self._group.rank])

    def _expand(self, numbers: Numbers) -> None:
        """Expand each state with its first ample slot that meets the proviso, or else fully."""
        slots = range(self.system.slots)
        expanded = np.zeros((len(numbers), len(slots)), bool)
        taken = np.full(len(numbers), WHOLLY, np.int8)
        if self.reduced:
            alone = self.system.alone(self.visited.rows(numbers))
            for slot in slots:
                chosen = (taken == WHOLLY) & alone[:, slot]
                taken[self._take(numbers, [(slot, chosen)], ask=True)] = slot
                expanded[:, slot] = chosen
        undecided = taken == WHOLLY
        self._take(numbers, [(slot, undecided & ~expanded[:, slot]) for slot in slots])
        taken[expanded.all(axis=1)] = WHOLLY
        self.visited.taken[numbers] = taken
        self._put_off |= bool((taken != WHOLLY).any())

    def _take(self, numbers: Numbers, chosen: Chosen, *, ask: bool = False) -> Flags:
        """Expand the chosen states by the events of their slots; with ``ask``, return which meet the proviso.

        A state meets it if a fault-free event leads to a later state, by level and then by fingerprint, or to a
        fully expanded state of an earlier level. No slot is then postponed for ever.
        """
        ways = self._ways(numbers, chosen)
        beside = []
        if ask:
            marks = fingerprints(self.system.columns, self.visited.rows(numbers))
            beside.append(marks[ways.source])
        places, batches = self._exchange.to_owners(ways.rows, *beside)
        visited = self._visit(*map(np.concatenate, zip(*batches, strict=True)))
        ends = np.cumsum([len(rows) for rows, *_ in batches])[:-1]
        onward = self._exchange.answered(places, np.split(visited, ends))
        deeper, later = ~ways.faults & (onward < _LATER), ~ways.faults & (onward <= _LATER)
        self.visited.onward[numbers[ways.source[deeper]]] = onward[deeper]
        met = np.zeros(len(numbers), bool)
        met[ways.source[later]] = True
        return met

    def _visit(self, rows: Rows, before: NDArray[np.uint64] | None = None) -> NDArray[np.uint32]:
        """Visit states; return the value of ``Visited.onward`` for those of the next level, NOWHERE for others.

        Return _LATER for states of this level whose fingerprint is above that in ``before``, and for fully
        expanded states of earlier levels.
        """
        visited, level = self.visited, self.visited.frontier
        numbers = visited.add(rows)
        onward = numbers.astype(np.uint32) * np.uint32(self._group.size) + np.uint32(self._group.rank)
        old = np.flatnonzero(numbers < level.stop)
        onward[old] = NOWHERE
        if before is not None:
            number = numbers[old]
            behind = fingerprints(self.system.columns, rows[old]) > before[old]
            later = np.where(number < level.start, visited.taken[number] == WHOLLY, behind)
            onward[old[later]] = _LATER
        return onward

    def _ways(self, numbers: Numbers, chosen: Chosen) -> Ways:
        """Return the steps that break nothing; note the others."""
        ways = self._steps.of(numbers, chosen)
        whole = ways.broken == 0
        if whole.all():
            return ways
        self._note(numbers[ways.source[~whole]], ways.broken[~whole])
        return ways.only(whole)

    def _check_that_all_finish(self) -> None:
        """Check that from every state a fault-free path leads to the end; note a counterexample."""

        def goes_on(left: int) -> bool:
            return not self._tell(left)[1]

        try:
            stuck = Finish(self._steps, self._exchange, self._group, on=goes_on).stuck()
        except OutOfTime:
            return
        levels = [self.visited.level_of(int(number)) for number in stuck[:1]]
        first = stuck[: np.searchsorted(stuck, self.visited.level(levels[0]).stop)] if levels else stuck
        least = [(level, self._retrace.least(first)) for level in levels]
        everywhere = list(itertools.chain(*self._group.gather(least)))
        self._outcome.finishes = not everywhere
        if everywhere:
            events, _ = self._retrace.events(min(everywhere)[1])
            self._found(FINISH, events, "from here the end is out of reach")

    def _note(self, numbers: Numbers, broken: Numbers) -> None:
        for number in np.unique(broken).tolist():
            invariant, _ = self.system.violations.values[number]
            least = self._retrace.least(numbers[broken == number])
            self._broken[invariant] = min(least, self._broken.get(invariant, least))

    def _note_broken(self) -> None:
        """Note a counterexample for each invariant that this level broke first, from the least state."""
        broken, put_off = zip(*self._group.gather((self._broken, self._put_off)), strict=True)
        self._broken, self._put_off = {}, any(put_off)
        for invariant in self.system.invariants:
            least = [each[invariant] for each in broken if invariant in each]
            if least and invariant not in self._outcome.counterexamples:
                events, state = self._retrace.events(min(least))
                # Workers' names may differ from those of the expanded state; the invariant is the same.
                event, what = next(
                    (event, what)
                    for event, _, violation in self._steps.each(state)
                    for kind, what in [violation or (None, "")]
                    if kind == invariant
                )
                self._found(invariant, [*events, event], what)

    def _found(self, invariant: str, events: list[Any], what: str) -> None:
        found = Counterexample(tuple(events), what, shortest=not self._put_off)
        self._outcome.counterexamples[invariant] = found
