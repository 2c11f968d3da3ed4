"""The system that is searched: workers, switch and the network between them, as one state with its steps.

A state is a row of numbers: one per party (a worker and its channels), one per slot of the switch, and one for
the remaining faults. The result of an event on a party or slot is computed once and then looked up, for many
states at a time. The models may therefore be slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.party import FAULTS, KINDS, Happening, Parties, code_of, message_of
from fanin.sim.checker.protocol import INVARIANTS, REUSE, Message, ProtocolModel, Violation
from fanin.sim.checker.tables import Flags, Interned, Lists, Numbers, Rows, Table, fingerprints

_FAULT = Happening._fields.index("fault")


class Ways(NamedTuple):
    """Steps from many states, as parallel arrays.

    - ``source``: index of the row from which a step starts.
    - ``rows``: state after the step.
    - ``faults``: the step is a fault, which FINISH may not need.
    - ``events``: number of the event.
    - ``broken``: number of the violation that ends the path, or 0.
    """

    source: NDArray[np.intp]
    rows: Rows
    faults: Flags
    events: Numbers
    broken: Numbers

    def only(self, which: Flags) -> Ways:
        """Return the steps whose flag is set."""
        source, rows, faults, events, broken = self
        return Ways(source[which], rows[which], faults[which], events[which], broken[which])


class Searched(Protocol):
    """A system that can be searched. A state is a row of numbers, whose meanings are in ``columns``.

    Each event belongs to one of ``slots`` and one of ``actors``. The events of one slot may be an ample set.
    """

    @property
    def invariants(self) -> tuple[str, ...]:
        """Invariants to check, with FINISH among them."""

    @property
    def slots(self) -> int:
        """Number of slots; 1 if events do not belong to slots."""

    @property
    def actors(self) -> int:
        """Number of actors, such as workers."""

    @property
    def columns(self) -> Sequence[Interned]:
        """Values of each column of a row, by number."""

    @property
    def violations(self) -> Interned:
        """Violations by number; number 0 is None."""

    @property
    def start(self) -> Numbers:
        """The initial state."""

    def ways(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Ways:
        """Return the events of an actor on a slot, as steps; without ``faults``, only fault-free ones."""

    def alone(self, rows: Rows) -> Flags:
        """Return, for each state, the slots whose events may be an ample set."""

    def canonical(self, rows: Rows) -> Rows:
        """Return a representative of each state's set of symmetric states, chosen by digests."""

    def done(self, rows: Rows) -> Flags:
        """Return whether everything is finished, for each state."""

    def event(self, number: int) -> Any:
        """Return an event as it is shown."""


class Event(NamedTuple):
    """An event: its name, worker and slot, and the message on the way ``UP`` to the switch or ``DOWN``."""

    name: str  # submit, timeout, deliver, deliver late, lose, duplicate, delay
    worker: int
    slot: int
    way: int
    message: Message


class Faults(NamedTuple):
    """Maximum number of faults of the network: of each kind, and ``together`` of all kinds."""

    losses: int = 0
    duplicates: int = 0
    reorder: int = 0
    together: int = 0

    def left(self) -> Faults:
        """Return the same faults in a normal form: no kind above ``together``."""
        losses, duplicates, reorder, together = self
        return Faults(min(losses, together), min(duplicates, together), min(reorder, together), together)

    def spent(self, fault: int) -> Faults | None:
        """Return the faults left after fault number ``fault`` (from 1; 0: none); None if it may not happen."""
        counts = list(self)
        if fault:
            counts[fault - 1] -= 1
            counts[-1] -= 1
        return Faults(*counts).left() if min(counts) >= 0 else None


class System:
    """``protocol`` under ``faults``.

    One channel per worker, slot and direction joins workers and switch. A channel is first in, first out;
    packets of different slots overtake each other freely. A duplicated packet arrives a second time, and a
    reordered packet arrives late; both at any time. A timer may expire while fewer than ``in_flight`` packets
    of its worker and slot are in the channels, so most retransmissions are premature. Useless packets are
    removed at once. Workers are alike: ``canonical`` keeps one of the states that differ by workers' names.
    """

    invariants = INVARIANTS

    def __init__(self, protocol: ProtocolModel, faults: Faults, *, in_flight: int = 2):
        for name, count in faults._asdict().items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, not {count!r}")
        self.protocol, self.faults = protocol, faults
        self.slots, self._workers = protocol.slots, protocol.workers
        self.actors = protocol.workers
        possible = tuple(name for name, count in zip(FAULTS, faults.left(), strict=False) if count)
        self.parties = Parties(protocol, faults=possible, in_flight=in_flight)
        self.registers, self.faults_left, self._events = Interned(), Interned(), Interned()
        self.violations = self.parties.violations
        self.columns = (
            *(self.parties.numbers,) * self._workers,
            *(self.registers,) * self.slots,
            self.faults_left,
        )
        self.start = np.array(
            [
                *[self.parties.start()] * self._workers,
                *[self.registers(protocol.slot())] * self.slots,
                self.faults_left(faults.left()),
            ],
            np.int32,
        )
        self._make_tables()

    def done(self, rows: Rows) -> Flags:
        """Return whether all operations of all workers are finished, for each state."""
        return np.all([self._is_done(rows[:, v]) for v in range(self._workers)], axis=0)

    def alone(self, rows: Rows) -> Flags:
        """Return, for each state, the slots to which events on other slots give no new event."""
        workers = self._worker_of(rows[:, : self._workers].ravel()).reshape(len(rows), self._workers)
        marks = fingerprints([self._states] * self._workers, workers)
        _, first, which = np.unique(marks, return_index=True, return_inverse=True)
        flags = [self._alone(tuple(workers[at].tolist())) for at in first]
        return np.array(flags, bool).reshape(len(first), self.slots)[which]

    def ways(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Ways:
        """Return the possible events of a worker's slot, as steps."""
        source, items = self._happenings[slot](rows[:, actor])
        left = self._spent(rows[source, -1], items[:, _FAULT])
        possible = np.flatnonzero(left >= 0 if faults else items[:, _FAULT] == 0)
        source, left = source[possible], left[possible]
        event, after, fault, code, before, broken = items.take(possible, axis=0).T
        new, broken = rows.take(source, axis=0), broken.copy()
        new[:, actor], new[:, -1] = after, left
        self._reach_switch(new, broken, code, actor, slot)
        self._look_for_reuse(rows, source, broken, before, slot)
        return Ways(source, new, fault > 0, self._event_of(event, actor), broken)

    def canonical(self, rows: Rows) -> Rows:
        """Return states with parties sorted by digest: one per set of states that differ by workers' names.

        If parties are equal, their order is the one with the least digests of the switch's slots.
        """
        parties = [rows[:, v].copy() for v in range(self._workers)]
        digests = [self.parties.numbers.digests.take(each) for each in parties]
        names = np.zeros(len(rows), np.int32)
        for end in range(self._workers - 1, 0, -1):  # bubble sort: few neighbours are out of order
            for left, exchanged in enumerate(self._exchanged[:end]):
                at = np.flatnonzero(digests[left] > digests[left + 1])
                for column in (parties, digests):
                    column[left][at], column[left + 1][at] = column[left + 1][at], column[left][at]
                names[at] = exchanged[names[at]]
        new, same = rows.copy(), np.zeros(len(rows), np.int32)
        for v, each in enumerate(parties):
            new[:, v] = each
            same |= (each == parties[v - 1]) << (v - 1) if v else 0
        self._rename_slots(new, names)
        for pattern, exchanges in enumerate(self._exchanges):
            if exchanges:
                alike = np.flatnonzero(same == pattern)
                new[alike] = self._least(new[alike], exchanges)
        return new

    def event(self, number: int) -> Event:
        """Return an event by its number."""
        of_party, worker = self._events.values[number]
        name, slot, way, code = self.parties.events.values[of_party]
        return Event(name, worker, slot, way, message_of(code))

    def _make_tables(self) -> None:
        """Make the tables of functions that are computed once per number."""
        protocol, parties, workers = self.protocol, self.parties, self._workers
        self._states, self._alone_of = Interned(), dict[tuple[int, ...], list[bool]]()
        self._codes = (protocol.rounds + 1) * KINDS  # above the code of every message

        def state(party: int) -> Any:
            return parties.numbers.values[party].worker

        self._worker_of = Table(lambda party, _: self._states(state(party)))
        self._is_done = Table(lambda party, _: protocol.done(state(party)))
        slots, width = range(self.slots), len(Happening._fields)
        self._happenings = [Lists(partial(parties.happenings, slot=slot), width) for slot in slots]
        self._put = [Table(partial(parties.put, slot=slot)) for slot in slots]
        self._switch = [Table(partial(self._answers, slot=slot), workers + 2) for slot in slots]
        self._waits = [Table(partial(self._does_wait, slot=slot)) for slot in slots]
        self._spent = Table(self._spend)
        self._event_of = Table(lambda event, worker: self._events((event, worker)))
        # Permutations of the workers' names (worker w is called names[w]), and their numbers after an exchange.
        self._names = list(permutations(range(workers)))
        numbers = {names: number for number, names in enumerate(self._names)}
        self._exchanged = [
            np.array([numbers[_exchanged(names, left)] for names in self._names], np.int32)
            for left in range(workers - 1)
        ]
        # By bit mask of equal neighbours: the renamings among equal parties, without the identity.
        self._exchanges = [
            [n for n, names in enumerate(self._names) if n and _is_among(names, same)]
            for same in range(1 << (workers - 1))
        ]
        self._renamed = Table(
            lambda kept, names: self.registers(
                protocol.renamed(self.registers.values[kept], self._names[names])
            )
        )

    def _reach_switch(self, new: Rows, broken: Numbers, codes: Numbers, v: int, slot: int) -> None:
        """Deliver messages (non-zero codes) to the slot of the switch, and its answers to the parties."""
        at = np.flatnonzero(codes)
        column = self._workers + slot
        answers = self._switch[slot](new[at, column], v * self._codes + codes[at])
        new[at, column], broken[at] = answers[:, 0], answers[:, 1]
        for to in range(self._workers):
            sent = answers[:, 2 + to]
            heard = np.flatnonzero(sent)
            new[at[heard], to] = self._put[slot](new[at[heard], to], sent[heard])

    def _look_for_reuse(
        self, rows: Rows, source: NDArray[np.intp], broken: Numbers, before: Numbers, slot: int
    ) -> None:
        """Note a violation if an operation begins while a worker waits on the slot's previous round."""
        at = np.flatnonzero(before)
        for other in reversed(range(self._workers)):
            waits = self._waits[slot](rows[source[at], other], before[at]) > 0
            for number in set(before[at[waits]].tolist()):
                what = f"slot {slot} is used again while worker {other} waits on its round {number}"
                broken[at[waits & (before[at] == number)]] = self.violations((REUSE, what))

    def _does_wait(self, party: int, before: int, slot: int) -> bool:
        return self.protocol.waits(self.parties.numbers.values[party].worker, slot, before)

    def _answers(self, kept: int, sent: int, slot: int) -> list[int]:
        """Return a slot's number after a message, the violation's number, and the message to each worker."""
        sender, code = divmod(sent, self._codes)
        try:
            step = self.protocol.switch(self.registers.values[kept], slot, sender, message_of(code))
        except Violation as violation:
            return [kept, self.violations(violation.value), *[0] * self._workers]
        heard = dict(step.sent)
        return [self.registers(step.state), 0, *(code_of(heard.get(to)) for to in range(self._workers))]

    def _spend(self, left: int, fault: int) -> int:
        spent = self.faults_left.values[left].spent(fault)
        return -1 if spent is None else self.faults_left(spent)

    def _alone(self, workers: tuple[int, ...]) -> list[bool]:
        if workers not in self._alone_of:
            states = [self._states.values[number] for number in workers]
            self._alone_of[workers] = [self.protocol.alone(states, slot) for slot in range(self.slots)]
        return self._alone_of[workers]

    def _rename_slots(self, rows: Rows, names: Numbers | int) -> None:
        for column in range(self._workers, self._workers + self.slots):
            rows[:, column] = self._renamed(rows[:, column], names)

    def _least(self, rows: Rows, exchanges: list[int]) -> Rows:
        """Return the least form of each row under the renamings ``exchanges`` of equal parties."""
        best = rows.copy()
        for names in exchanges:
            other = rows.copy()
            self._rename_slots(other, names)
            less, undecided = np.zeros(len(rows), bool), np.ones(len(rows), bool)
            for column in range(self._workers, self._workers + self.slots):
                ours = self.registers.digests[other[:, column]]
                theirs = self.registers.digests[best[:, column]]
                less |= undecided & (ours < theirs)
                undecided &= ours == theirs
            best[less] = other[less]
        return best


def _exchanged(names: tuple[int, ...], left: int) -> tuple[int, ...]:
    """Return the names after names ``left`` and ``left + 1`` are exchanged."""
    other = {left: left + 1, left + 1: left}
    return tuple(other.get(name, name) for name in names)


def _is_among(names: tuple[int, ...], same: int) -> bool:
    """Return whether each worker gets the name of a worker with an equal party."""
    return all(
        same >> neighbour & 1
        for worker, name in enumerate(names)
        for neighbour in range(min(worker, name), max(worker, name))
    )
