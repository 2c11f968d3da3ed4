"""System for the search: workers, switch and the network between them, as one state with its steps.

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

from fanin.sim.checker.party import FAULTS, KINDS, Parties, PartyStep, code_of, message_of
from fanin.sim.checker.protocol import INVARIANTS, REUSE, Message, ProtocolModel, Violation
from fanin.sim.checker.tables import Flags, Interned, Lists, Numbers, Rows, Table, fingerprints

_FAULT = PartyStep._fields.index("fault")


class Transitions(NamedTuple):
    """Steps from many states, as parallel arrays.

    - ``source``: index of the row from which a step starts.
    - ``rows``: state after the step.
    - ``faults``: whether the step is a fault. FINISH, "once losses stop, everything finishes", is checked along
      the other steps.
    - ``events``: number of the event.
    - ``violations``: number of the violation that ends the path, or 0.
    """

    source: NDArray[np.intp]
    rows: Rows
    faults: Flags
    events: Numbers
    violations: Numbers

    def only(self, flags: Flags) -> Transitions:
        """Return the steps whose flag is set."""
        source, rows, faults, events, violations = self
        return Transitions(source[flags], rows[flags], faults[flags], events[flags], violations[flags])


class Searchable(Protocol):
    """Interface of a system to search. A state is a row of numbers, whose meanings are in ``columns``.

    Each event belongs to one of ``slots`` and one of ``actors``. The events of one slot may be an *ample set*:
    a subset of a state's events that the search may explore alone, since it postpones the others without
    missing a violation (partial-order reduction).
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

    def transitions(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Transitions:
        """Return the events of an actor on a slot, as steps; without ``faults``, only fault-free ones."""

    def independent_slots(self, rows: Rows) -> Flags:
        """Return, for each state and slot, whether the slot's events may be an ample set."""

    def canonical(self, rows: Rows) -> Rows:
        """Return a representative of each state's set of symmetric states, chosen by digests."""

    def done(self, rows: Rows) -> Flags:
        """Return whether everything is finished, for each state."""

    def event(self, number: int) -> Any:
        """Return an event as it is shown."""


class Event(NamedTuple):
    """An event.

    - ``name``: submit, timeout, deliver, deliver late, lose, duplicate, delay.
    - ``actor``: worker, or switch below the root, at the lower end of the link.
    - ``direction``: ``UP`` (from the actor) or ``DOWN``.
    """

    name: str
    actor: int
    slot: int
    direction: int
    message: Message


class Faults(NamedTuple):
    """Maximum number of the network's faults: of each kind, and ``together`` for the sum of all kinds."""

    losses: int = 0
    duplicates: int = 0
    reorder: int = 0
    together: int = 0

    def normalised(self) -> Faults:
        """Return the same faults in a normal form: no kind above ``together``."""
        losses, duplicates, reorder, together = self
        return Faults(min(losses, together), min(duplicates, together), min(reorder, together), together)

    def spend(self, fault: int) -> Faults | None:
        """Return the faults that remain after a fault, or None if the fault is not allowed any more.

        ``fault``: 1 + the fault's index in FAULTS, or 0 for no fault.
        """
        remaining = list(self)  # the kinds in the order of FAULTS, then ``together``
        if fault:
            remaining[fault - 1] -= 1
            remaining[-1] -= 1
        return Faults(*remaining).normalised() if min(remaining) >= 0 else None


class System:
    """Workers and switch of ``protocol``, joined by a network with ``faults``.

    - A channel per worker, slot and direction is first in, first out; packets of different slots overtake each
      other freely.
    - A duplicated packet arrives a second time, and a reordered packet arrives late; both at any time.
    - A timer may expire while fewer than ``in_flight`` packets of its worker and slot are in the channels, so
      most retransmissions are premature.
    - Useless packets are removed at once.
    - Workers are interchangeable: ``canonical`` keeps one of the states that differ by workers' names.
    """

    invariants = INVARIANTS

    def __init__(self, protocol: ProtocolModel, faults: Faults, *, in_flight: int = 2):
        for name, count in faults._asdict().items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, not {count!r}")
        self.protocol, self.faults = protocol, faults
        self.slots, self._workers = protocol.slots, protocol.workers
        fault_kinds = tuple(name for name, count in zip(FAULTS, faults.normalised(), strict=False) if count)
        self.parties = Parties(protocol, faults=fault_kinds, in_flight=in_flight)
        switches = self._switch_parties(faults=fault_kinds, in_flight=in_flight)
        self.actors = self._slots_column = protocol.workers + len(switches)
        self.registers, self.faults_left, self._events = Interned(), Interned(), Interned()
        self.violations = self.parties.violations
        self.columns = (
            *(self.parties.numbers,) * self._workers,
            *(switch.numbers for switch in switches),
            *(self.registers,) * self.slots,
            self.faults_left,
        )
        self.start = np.array(
            [
                *[self.parties.start()] * self._workers,
                *[switch.start() for switch in switches],
                *[self.registers(protocol.slot())] * self.slots,
                self.faults_left(faults.normalised()),
            ],
            np.int32,
        )
        self._make_tables()

    def done(self, rows: Rows) -> Flags:
        """Return whether all operations of all workers are finished, for each state."""
        return np.all([self._is_done(rows[:, worker]) for worker in range(self._workers)], axis=0)

    def independent_slots(self, rows: Rows) -> Flags:
        """Return, for each state and slot, whether events on other slots add no event to the slot."""
        # The answer depends on the workers alone, without channels: compute it once per combination of workers.
        workers = self._worker_of(rows[:, : self._workers].ravel()).reshape(len(rows), self._workers)
        marks = fingerprints([self._states] * self._workers, workers)
        _, first, state_of_row = np.unique(marks, return_index=True, return_inverse=True)
        flags = [self._independent_slots(tuple(workers[index].tolist())) for index in first]
        return np.array(flags, bool).reshape(len(first), self.slots)[state_of_row]

    def transitions(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Transitions:
        """Return the possible events of worker ``actor`` on ``slot``, as steps."""
        source, party_steps = self._steps_of(actor, slot)(rows[:, actor])
        faults_left = self._faults_after(rows[source, -1], party_steps[:, _FAULT])
        possible = np.flatnonzero(faults_left >= 0 if faults else party_steps[:, _FAULT] == 0)
        source, faults_left = source[possible], faults_left[possible]
        event, party, fault, code, previous_round, violations, to_members = party_steps.take(possible, axis=0).T
        successors, violations = rows.take(source, axis=0), violations.copy()
        successors[:, actor], successors[:, -1] = party, faults_left
        self._deliver_to_switch(successors, violations, code, actor, slot)
        self._deliver_to_members(successors, to_members, actor, slot)
        self._check_reuse(rows, source, violations, previous_round, slot)
        return Transitions(source, successors, fault > 0, self._event_of(event, actor), violations)

    def canonical(self, rows: Rows) -> Rows:
        """Return states with parties sorted by digest: one per set of states that differ by workers' names.

        Sorting renames workers, so the switch's slots, which contain workers' names, are renamed alike. If
        parties are equal, several renamings sort them; the one with the least digests of the slots is chosen.
        """
        parties = [rows[:, worker].copy() for worker in range(self._workers)]
        digests = [self.parties.numbers.digests.take(party_numbers) for party_numbers in parties]
        renamings = np.zeros(len(rows), np.int32)  # each row's number in ``_renamings``; 0 is the identity
        for end in range(self._workers - 1, 0, -1):  # bubble sort: few neighbours are out of order
            for place, renaming_after_swap in enumerate(self._renaming_after_swap[:end]):
                rows_to_swap = np.flatnonzero(digests[place] > digests[place + 1])
                for column in (parties, digests):
                    column[place][rows_to_swap], column[place + 1][rows_to_swap] = (
                        column[place + 1][rows_to_swap],
                        column[place][rows_to_swap],
                    )
                renamings[rows_to_swap] = renaming_after_swap[renamings[rows_to_swap]]
        canonical_rows, equal_neighbours = rows.copy(), np.zeros(len(rows), np.int32)
        canonical_rows[:, : self._workers] = np.stack(parties, axis=1)
        for worker in range(1, self._workers):  # bit w: workers w and w + 1 have equal parties
            equal_neighbours |= (parties[worker] == parties[worker - 1]) << (worker - 1)
        self._rename_slots(canonical_rows, renamings)
        for pattern, renamings_of_equals in enumerate(self._renamings_of_equals):
            if renamings_of_equals:
                matching = np.flatnonzero(equal_neighbours == pattern)
                canonical_rows[matching] = self._least_form(canonical_rows[matching], renamings_of_equals)
        return canonical_rows

    def event(self, number: int) -> Event:
        """Return an event by its number."""
        party_event, actor = self._events.values[number]
        name, slot, direction, code = self.parties.events.values[party_event]
        return Event(name, actor, slot, direction, message_of(code))

    def _make_tables(self) -> None:
        """Make the tables of functions that are computed once per number."""
        protocol, parties, workers = self.protocol, self.parties, self._workers
        self._states, self._independent_slots_of = Interned(), dict[tuple[int, ...], list[bool]]()
        # Above the code of every message: sender · _codes + code is one number for both.
        self._codes = (protocol.rounds + 1) * KINDS

        def state(party: int) -> Any:
            return parties.numbers.values[party].worker

        self._worker_of = Table(lambda party, _: self._states(state(party)))
        self._is_done = Table(lambda party, _: protocol.done(state(party)))
        slots, width = range(self.slots), len(PartyStep._fields)
        self._party_steps = [Lists(partial(parties.steps, slot=slot), width) for slot in slots]
        self._put = [Table(partial(parties.put, slot=slot)) for slot in slots]
        self._switch = [
            Table(partial(self._switch_step, slot=slot), protocol.root_members + 2) for slot in slots
        ]
        self._is_waiting = [Table(partial(self._worker_waits, slot=slot)) for slot in slots]
        self._faults_after = Table(self._spend)
        self._event_of = Table(lambda event, actor: self._events((event, actor)))
        # A renaming gives worker w the name names[w]. The identity is the first permutation, number 0.
        self._renamings = list(permutations(range(workers)))
        numbers = {names: number for number, names in enumerate(self._renamings)}
        # By place: the number of each renaming after the workers at ``place`` and ``place + 1`` are swapped.
        self._renaming_after_swap = [
            np.array([numbers[_swap_names(names, place)] for names in self._renamings], np.int32)
            for place in range(workers - 1)
        ]
        # By bit mask of equal neighbours: the renamings among equal parties, without the identity.
        self._renamings_of_equals = [
            [n for n, names in enumerate(self._renamings) if n and _is_among_equals(names, equal_neighbours)]
            for equal_neighbours in range(1 << (workers - 1))
        ]
        self._renamed = Table(
            lambda register_number, renaming: self.registers(
                protocol.renamed(self.registers.values[register_number], self._renamings[renaming])
            )
        )

    def _switch_parties(self, *, faults: tuple[str, ...], in_flight: int) -> Sequence[Parties]:
        """Return the parties of each switch below the root, whose columns follow those of the workers."""
        return ()

    def _steps_of(self, actor: int, slot: int) -> Lists:
        """Return the table of an actor's steps on a slot, by party."""
        return self._party_steps[slot]

    def _deliver_to_members(self, rows: Rows, codes: Numbers, actor: int, slot: int) -> None:
        """Deliver messages (non-zero codes) of a switch below the root to all its members."""

    def _deliver_to_switch(
        self, rows: Rows, violations: Numbers, codes: Numbers, sender: int, slot: int
    ) -> None:
        """Deliver messages (non-zero codes) to the slot of the switch, and its answers to the parties."""
        indices = np.flatnonzero(codes)
        column = self._slots_column + slot
        answers = self._switch[slot](rows[indices, column], sender * self._codes + codes[indices])
        rows[indices, column], violations[indices] = answers[:, 0], answers[:, 1]
        for receiver in range(self._workers):
            put_codes(rows, indices, receiver, answers[:, 2 + receiver], self._put[slot])

    def _check_reuse(
        self, rows: Rows, source: NDArray[np.intp], violations: Numbers, previous_rounds: Numbers, slot: int
    ) -> None:
        """Note a violation if an operation begins while a worker waits on the slot's previous round.

        If several workers wait, the violation names the one with the lowest number: it is written last.
        """
        begins = np.flatnonzero(previous_rounds)
        for other in reversed(range(self._workers)):
            waiting = self._is_waiting[slot](rows[source[begins], other], previous_rounds[begins]) > 0
            for number in set(previous_rounds[begins[waiting]].tolist()):
                description = f"slot {slot} is used again while worker {other} waits on its round {number}"
                violations[begins[waiting & (previous_rounds[begins] == number)]] = self.violations(
                    (REUSE, description)
                )

    def _worker_waits(self, party: int, round_number: int, slot: int) -> bool:
        return self.protocol.is_waiting(self.parties.numbers.values[party].worker, slot, round_number)

    def _switch_step(self, register_number: int, message_number: int, slot: int) -> list[int]:
        """Return a slot's number after a message, the violation's number, and each worker's code; 0: none."""
        sender, code = divmod(message_number, self._codes)
        try:
            step = self.protocol.switch(self.registers.values[register_number], slot, sender, message_of(code))
        except Violation as violation:
            return [register_number, self.violations(violation.value), *[0] * self.protocol.root_members]
        replies = dict(step.sent)
        return [
            self.registers(step.state),
            0,
            *(code_of(replies.get(member)) for member in range(self.protocol.root_members)),
        ]

    def _spend(self, faults_left: int, fault: int) -> int:
        remaining = self.faults_left.values[faults_left].spend(fault)
        return -1 if remaining is None else self.faults_left(remaining)

    def _independent_slots(self, workers: tuple[int, ...]) -> list[bool]:
        if workers not in self._independent_slots_of:
            states = [self._states.values[number] for number in workers]
            self._independent_slots_of[workers] = [
                self.protocol.is_alone(states, slot) for slot in range(self.slots)
            ]
        return self._independent_slots_of[workers]

    def _rename_slots(self, rows: Rows, renamings: Numbers | int) -> None:
        """Rename the workers in the slots of each row, in place."""
        for column in range(self._workers, self._workers + self.slots):
            rows[:, column] = self._renamed(rows[:, column], renamings)

    def _least_form(self, rows: Rows, renamings: list[int]) -> Rows:
        """Return each row with its slots renamed so that their digests are least, in the order of the slots."""
        least = rows.copy()
        for renaming in renamings:
            candidate = rows.copy()
            self._rename_slots(candidate, renaming)
            smaller, undecided = np.zeros(len(rows), bool), np.ones(len(rows), bool)
            for column in range(self._workers, self._workers + self.slots):
                candidate_digests = self.registers.digests[candidate[:, column]]
                least_digests = self.registers.digests[least[:, column]]
                smaller |= undecided & (candidate_digests < least_digests)
                undecided &= candidate_digests == least_digests
            least[smaller] = candidate[smaller]
        return least


def put_codes(rows: Rows, indices: NDArray[np.intp], receiver: int, codes: Numbers, put: Table) -> None:
    """Put a message (a non-zero code) for ``receiver`` into each of the rows at ``indices``.

    ``put``: table of the party after a message, by party and code.
    """
    sent = np.flatnonzero(codes)
    rows[indices[sent], receiver] = put(rows[indices[sent], receiver], codes[sent])


def _swap_names(names: tuple[int, ...], place: int) -> tuple[int, ...]:
    """Return ``names`` after the names ``place`` and ``place + 1`` are swapped."""
    partner = {place: place + 1, place + 1: place}
    return tuple(partner.get(name, name) for name in names)


def _is_among_equals(names: tuple[int, ...], equal_neighbours: int) -> bool:
    """Return whether each worker gets the name of a worker with an equal party.

    ``equal_neighbours``: bit w is 1 if workers w and w + 1 have equal parties. Parties are sorted, so the
    parties of two workers are equal if all neighbours between them are.
    """
    return all(
        equal_neighbours >> neighbour & 1
        for worker, name in enumerate(names)
        for neighbour in range(min(worker, name), max(worker, name))
    )
