"""Explicit-state search: every state that a system can reach, breadth first, by one process or several.

Two reductions make it smaller: symmetry (``canonical``) and partial order (``Search``). Why nothing is
lost, and how processes share the states out, is argued in docs/reference/checker.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fanin.sim.checker.exchange import RowExchange
from fanin.sim.checker.graph import Graph
from fanin.sim.checker.group import Group, group_of
from fanin.sim.checker.protocol import FINISH
from fanin.sim.checker.system import Faults, Searched, System, Ways
from fanin.sim.checker.tables import Flags, Numbers, fingerprints
from fanin.sim.checker.visited import NO_PARENT, Fingerprints, Visited

HOLDS, BROKEN, NOT_PROVED = "holds", "broken", "not proved"
_BATCH = 1 << 13  # states that a process expands between two exchanges
Progress = Callable[[int, int], None]  # gets the states seen and those still to expand


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

    ``depth`` counts the events from the start to the states that were expanded last.
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
    processes: int = 1,
    progress: Progress = lambda states, waiting: None,
) -> Outcome:
    """Search ``system``; ask for FINISH apart where something else is broken and the protocol can go on.

    The second search allows one loss, if ``system`` does, and no other fault: that is enough for a protocol
    that hangs. Parameters as for ``search``.
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
        for invariant, way in second.counterexamples.items():  # with other faults there may be a shorter one
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
    """Explore until nothing is new, an invariant is broken, or ``seconds`` are over.

    A broken invariant ends its path; with ``all_invariants`` the search goes on beside it. ``progress``
    gets the states seen and those still to expand, now and then. What is found does not depend on
    ``processes``, as long as it is not cut. Raises CheckFailed when a process dies.
    """

    def work(group: Group) -> Outcome:
        said = progress if not group.rank else (lambda states, waiting: None)
        return Search(system, reduced=reduced, group=group).run(
            seconds=seconds, all_invariants=all_invariants, progress=said
        )

    with group_of(processes, work) as group:
        return work(group)


class Search:
    """A breadth-first search from ``system.start``: one process's share of it.

    With ``reduced`` it is a partial-order reduction by ample sets: where no other slot can give a slot a new
    event (``alone``), the events of that slot are the ample set, and those of the others are put off.
    The cycle proviso keeps them from being put off for ever: an event of the set that is no fault must lead to
    a state that is behind this one, by level and then by fingerprint, or to one of a level before that is fully
    expanded, that is, with the events of all slots. Neither depends on who searches, and so nor does what is
    found.
    """

    def __init__(self, system: Searched, *, reduced: bool = True, group: Group | None = None):
        self.system, self.reduced = system, reduced and system.slots > 1
        self.visited = Visited(system.columns)
        self._group = group or Group()
        self._rows = RowExchange(self._group, system.columns)
        self._graph = Graph(self._group)  # of the ways that need no fault
        self._put_off = False  # whether events of a slot ever were
        self._broken: dict[str, int] = {}  # in this level: from which state, the least fingerprint
        self._outcome = Outcome(system.invariants)

    def run(
        self,
        *,
        seconds: float = 600.0,
        all_invariants: bool = False,
        progress: Progress = lambda states, waiting: None,
    ) -> Outcome:
        """Explore, in step with the group's other processes; parameters as for ``search``."""
        began, outcome = time.monotonic(), self._outcome
        outcome.exhausted = self._explore(began + seconds, all_invariants, progress)
        if outcome.exhausted and not outcome.counterexamples:
            self._check_that_all_finish()
        outcome.states = sum(self._group.gather(len(self.visited)))
        outcome.seconds = time.monotonic() - began
        return outcome

    def _explore(self, end: float, all_invariants: bool, progress: Progress) -> bool:
        """Level by level; whether nothing is left to expand."""
        visited, outcome = self.visited, self._outcome
        self._visit_start()
        for outcome.depth in itertools.count():
            visited.next_level()
            frontier = np.arange(visited.frontier.start, visited.frontier.stop, dtype=np.int32)
            for at in range(0, max(self._group.gather(len(frontier))), _BATCH):
                self._expand(frontier[at : at + _BATCH])
                left = len(frontier[at + _BATCH :]) + len(visited) - visited.frontier.stop
                here = len(visited), left, time.monotonic() > end and not self._group.rank
                seen, waiting, over = zip(*self._group.gather(here), strict=True)
                progress(sum(seen), sum(waiting))
                if any(over):
                    break
            self._note_broken()
            if not sum(waiting):
                return True
            if any(over) or (outcome.counterexamples and not all_invariants):
                return False
        raise AssertionError("itertools.count ends")

    def _visit_start(self) -> None:
        start = self.system.canonical(self.system.start[None])
        marks = fingerprints(self.system.columns, start)
        if self._rows.owners(marks)[0] == self._group.rank:
            self.visited.add(start, marks, np.full(1, NO_PARENT))

    def _expand(self, numbers: Numbers) -> None:
        """Expand states: each with the first ample slot that meets the proviso, or else fully."""
        slots = range(self.system.slots)
        expanded = np.zeros((len(numbers), len(slots)), bool)
        undecided = np.ones(len(numbers), bool)
        if self.reduced:
            alone = self.system.alone(self.visited.rows[numbers])
            for slot in slots:
                chosen = undecided & alone[:, slot]
                undecided &= ~self._take(numbers, [(slot, chosen)], ask=True)
                expanded[:, slot] = chosen
        self._take(numbers, [(slot, undecided & ~expanded[:, slot]) for slot in slots])
        fully = undecided | expanded.all(axis=1)
        self.visited.fully[numbers[fully]] = True
        self._put_off |= not fully.all()

    def _take(self, numbers: Numbers, chosen: list[tuple[int, Flags]], *, ask: bool = False) -> Flags:
        """Take the events of slots, each of chosen states; if asked, which of all states meet the proviso.

        They do if an event that is no fault leads to a state behind this one, by level and then fingerprint,
        or to one of a level before that is fully expanded: so no slot is put off for ever.
        """
        ways = self._ways(numbers, chosen)
        marks = fingerprints(self.system.columns, ways.rows)
        owners = self._rows.owners(marks)
        parents, free = self.visited.fingerprints[numbers[ways.source]], ~ways.faults
        to = [np.flatnonzero(owners == rank) for rank in range(self._group.size)]
        answers = []
        for rank, (rows, marked, before, sources, free_ones) in enumerate(
            self._rows.exchange(
                [(ways.rows[at], marks[at], parents[at], numbers[ways.source[at]], free[at]) for at in to]
            )
        ):
            targets = self.visited.add(rows, marked, before)
            self._graph.add(sources[free_ones], rank, targets[free_ones])
            answers.append(free_ones & self._comes_later(targets, before))
        met = np.zeros(len(numbers), bool)
        if ask:
            for at, answer in zip(to, self._group.exchange(answers), strict=True):
                met[ways.source[at[answer]]] = True
        return met

    def _ways(self, numbers: Numbers, chosen: list[tuple[int, Flags]]) -> Ways:
        """The ways on that break nothing, to canonical states; what breaks something is noted."""
        found = []
        for slot, flags in chosen:
            at = np.flatnonzero(flags)
            for ways in self.system.ways(self.visited.rows[numbers[at]], slot):
                whole = ways.broken == 0
                if not whole.all():
                    self._note(numbers[at[ways.source[~whole]]], ways.broken[~whole])
                    ways = Ways(*(column[whole] for column in ways))
                found.append(ways._replace(source=at[ways.source]))
        joined = Ways(*map(np.concatenate, zip(*found, strict=True)))
        return joined._replace(rows=self.system.canonical(joined.rows))

    def _comes_later(self, targets: Numbers, before: Fingerprints) -> Flags:
        """Which states are behind those of these fingerprints, or of a level before and fully expanded."""
        visited, level = self.visited, self.visited.frontier
        same = (targets >= level.start) & (targets < level.stop) & (visited.fingerprints[targets] > before)
        return (targets >= level.stop) | same | (visited.fully[targets] & (targets < level.start))

    def _check_that_all_finish(self) -> None:
        """From every state a way without faults leads to the end."""
        visited, count = self.visited, len(self.visited)
        stuck = np.flatnonzero(~self._graph.leading_to(np.flatnonzero(self.system.done(visited.rows)), count))
        levels = [visited.level(int(number)) for number in stuck[:1]]
        first = stuck[: np.searchsorted(stuck, visited.end_of(levels[0]))] if levels else stuck
        least = [(level, int(visited.fingerprints[first].min())) for level in levels]
        everywhere = list(itertools.chain(*self._group.gather(least)))
        if everywhere:
            events, _ = self._retrace(self._path(min(everywhere)[1]))
            self._found(FINISH, events, "from here the end is out of reach")

    def _note(self, numbers: Numbers, broken: Numbers) -> None:
        for number in np.unique(broken).tolist():
            invariant, _ = self.system.violations.values[number]
            least = int(self.visited.fingerprints[numbers[broken == number]].min())
            self._broken[invariant] = min(least, self._broken.get(invariant, least))

    def _note_broken(self) -> None:
        """What the events of this level broke first: from the state of the least fingerprint of all."""
        broken, put_off = zip(*self._group.gather((self._broken, self._put_off)), strict=True)
        self._broken, self._put_off = {}, any(put_off)
        for invariant in self.system.invariants:
            least = [each[invariant] for each in broken if invariant in each]
            if least and invariant not in self._outcome.counterexamples:
                events, state = self._retrace(self._path(min(least)))
                # It may have other names than the state that was expanded; its violation is of the same kind.
                event, what = next(
                    (event, what)
                    for event, _, violation in self._each_way(state)
                    for kind, what in [violation or (None, "")]
                    if kind == invariant
                )
                self._found(invariant, [*events, event], what)

    def _found(self, invariant: str, events: list[Any], what: str) -> None:
        found = Counterexample(tuple(events), what, shortest=not self._put_off)
        self._outcome.counterexamples[invariant] = found

    def _path(self, mark: int) -> list[Numbers]:
        """The states from the start to that of a fingerprint, which one of the processes has."""
        path: list[Numbers] = []
        while mark != NO_PARENT:
            marks = np.array([mark], np.uint64)
            at = [self.visited.find(mark)] if self._rows.owners(marks)[0] == self._group.rank else []
            mine = self.visited.rows[at], self.visited.parents[at]
            rows, parents = map(
                np.concatenate, zip(*self._rows.exchange([mine] * self._group.size), strict=True)
            )
            path.insert(0, rows[0])
            mark = int(parents[0])
        return path

    def _retrace(self, path: list[Numbers]) -> tuple[list[Any], Numbers]:
        """The events along canonical states, all by the names that the workers have at the start."""
        state, events = self.system.start, []
        for target in path[1:]:
            event, state = next(
                (event, after)
                for event, after, violation in self._each_way(state)
                if not violation and (self.system.canonical(after[None])[0] == target).all()
            )
            events.append(event)
        return events, state

    def _each_way(self, state: Numbers) -> Iterator[tuple[Any, Numbers, tuple[str, str] | None]]:
        """Ways on from one state: the event, the state after it, and which invariant it breaks, and how."""
        for slot in range(self.system.slots):
            for ways in self.system.ways(state[None], slot):
                for after, event, broken in zip(ways.rows, ways.events, ways.broken, strict=True):
                    yield self.system.event(event), after, self.system.violations.values[broken]
