"""One direction of the reliable link as a searchable system: a sender, a receiver and a network between them.

The other direction shares only the wire and the failures of the ends. The network may delay any frame for any
time, so sharing the wire adds no behaviour (docs/systems/link.md, "Proof").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fanin.golden.link import Receiver, Sender
from fanin.sim.checker.link_ends import (
    BUSY,
    FAULTS,
    INVARIANTS,
    ONCE,
    PREMATURE,
    REPEAT,
    Bounds,
    LinkEnds,
    LinkEvent,
    ReceivingEnd,
    SendingEnd,
    Step,
)
from fanin.sim.checker.protocol import Violation
from fanin.sim.checker.system import Transitions
from fanin.sim.checker.tables import Flags, Interned, Lists, Numbers, Rows, Table


class _StepNumbers(NamedTuple):
    """A Step as a row of numbers; ``packet`` and ``broken`` are 0 if the step has none."""

    event: int
    after: int
    packet: int
    freed: int
    broken: int


class LinkSystem:
    """The link within ``bounds`` as a system for ``search``. ``sender`` and ``receiver`` are the ends' models.

    A state is a row of two numbers: a SendingEnd and a ReceivingEnd. The possible steps of an end, with the
    packets in flight to it, are computed once and then looked up. Frame numbers count from the oldest frame
    that the sender keeps, so the states of an endless stream repeat.
    """

    invariants, slots, actors = INVARIANTS, 1, 2

    def __init__(
        self,
        bounds: Bounds,
        *,
        sender: Callable[..., Sender] = Sender,
        receiver: Callable[..., Receiver] = Receiver,
    ):
        self.bounds = bounds
        self._ends = LinkEnds(bounds, sender, receiver)
        self.columns = self._ends.senders, self._ends.receivers
        self._events, self._packets, self.violations = Interned(), Interned(), Interned()
        self._packets(None)
        self.violations(None)
        self._not_taken = self.violations((ONCE, "a frame is acknowledged that was not taken"))
        self.start = np.array(self._ends.start(), np.int32)
        self._make_tables()

    def independent_slots(self, rows: Rows) -> Flags:
        """Return no ample sets: the link has a single slot."""
        return np.zeros((len(rows), self.slots), bool)

    def canonical(self, rows: Rows) -> Rows:
        """Return ``rows``: the link has no symmetric states."""
        return rows

    def event(self, number: int) -> LinkEvent:
        """Return the event of a number, as it is shown."""
        return LinkEvent(*self._events.values[number])

    def done(self, rows: Rows) -> Flags:
        """Check whether all offered frames are acknowledged and consumed, or the job has failed."""
        senders, receivers = rows.T
        unfinished_frames = self._kept(senders) + self._received(receivers)
        return (unfinished_frames == 0) | (self._failed(senders) > 0) | (self._lost(receivers) > 0)

    def ends(self, state: Numbers) -> tuple[SendingEnd, ReceivingEnd]:
        """Return the two ends of a state."""
        return self._ends.senders.values[state[0]], self._ends.receivers.values[state[1]]

    def transitions(self, rows: Rows, slot: int, actor: int, *, faults: bool = True) -> Transitions:
        """Return the next steps of the sender (actor 0) or receiver (actor 1), and the states after them."""
        possible, transitions = (self._receives if actor else self._sends)(rows)
        return transitions.only(possible if faults else possible & ~transitions.faults)

    def _sends(self, rows: Rows) -> tuple[Flags, Transitions]:
        """Return the sender's steps, and for each whether it is possible.

        A step with a frame to send needs room among the frames in flight. A timeout is premature while either
        end could send or receive a frame. A step that frees frames renumbers the receiver's state.
        """
        busy = (self._sender_is_busy(rows[:, 0]) | self._receiver_is_busy(rows[:, 1])) > 0
        source, items = self._sends_of(rows[:, 0])
        event, after, packet, freed, broken = items.T
        receivers = rows[source, 1]
        event = np.where(busy[source], self._premature(event), event)
        broken = np.where((broken == 0) & (freed > self._taken(receivers)), self._not_taken, broken)
        new = np.stack([after, self._moved(receivers, np.where(broken == 0, freed, 0))], axis=1)
        sent = np.flatnonzero((packet > 0) & (broken == 0))
        new[sent, 1] = self._to_receiver(receivers[sent], packet[sent])
        possible = (packet == 0) | (broken > 0) | (self._receives_more(receivers) > 0)
        if PREMATURE not in self.bounds.faults:
            possible &= self._is_premature(event) == 0
        return possible, Transitions(source, new, self._is_fault(event) > 0, event, broken)

    def _receives(self, rows: Rows) -> tuple[Flags, Transitions]:
        """Return the receiver's steps, and for each whether it is possible: an answer needs room in flight."""
        source, items = self._receives_of(rows[:, 1])
        event, after, packet, _, broken = items.T
        senders = rows[source, 0]
        new = np.stack([senders, after], axis=1)
        sent = np.flatnonzero((packet > 0) & (broken == 0))
        new[sent, 0] = self._to_sender(senders[sent], packet[sent])
        possible = (packet == 0) | (broken > 0) | (self._sender_hears_more(senders) > 0)
        return possible, Transitions(source, new, self._is_fault(event) > 0, event, broken)

    def _make_tables(self) -> None:
        """Make the tables of functions computed once per number. ``ack_delay`` is below ``timeout``."""
        ends, events, packets = self._ends, self._events.values, self._packets.values
        senders, receivers, capacity = ends.senders.values, ends.receivers.values, self.bounds.in_flight
        width = len(_StepNumbers._fields)
        self._sends_of = Lists(lambda end: self._numbered(ends.sends(senders[end])), width)
        self._receives_of = Lists(lambda end: self._numbered(ends.receives(receivers[end])), width)
        self._sender_is_busy = Table(lambda end, _: _busy(ends.sends(senders[end])))
        self._receiver_is_busy = Table(lambda end, _: _busy(ends.receives(receivers[end])))
        self._receives_more = Table(lambda end, _: len(receivers[end].packets) < capacity)
        self._sender_hears_more = Table(lambda end, _: len(senders[end].packets) < capacity)
        self._to_receiver = Table(lambda end, packet: ends.put(receivers[end], packets[packet]))
        self._to_sender = Table(lambda end, packet: ends.put(senders[end], packets[packet]))
        self._moved = Table(ends.move)
        self._failed = Table(lambda end, _: ends.failed(senders[end]))
        self._kept = Table(lambda end, _: ends.kept(senders[end]))
        self._lost = Table(lambda end, _: ends.lost(receivers[end]))
        self._received = Table(lambda end, _: ends.received(receivers[end]))
        self._taken = Table(lambda end, _: receivers[end].taken)
        self._premature = Table(lambda event, _: self._made_premature(event))
        self._is_premature = Table(lambda event, _: events[event][0] == PREMATURE)
        self._is_fault = Table(lambda event, _: events[event][0] in FAULTS)

    def _made_premature(self, event: int) -> int:
        """Return the number of a timer's event that comes while an end is busy; other events stay the same."""
        name, *packet = self._events.values[event]
        return self._events((PREMATURE, *packet)) if name in ("timeout", REPEAT) else event

    def _numbered(self, steps: Iterator[Step]) -> list[tuple[int, ...]]:
        """Return the steps as rows of ``_StepNumbers``."""
        rows: list[tuple[int, ...]] = []
        for step in steps:
            event, packet = self._events(step.event), self._packets(step.packet)
            if isinstance(step.after, Violation):
                rows.append(_StepNumbers(event, 0, packet, step.freed, self.violations(step.after.value)))
            else:
                rows.append(_StepNumbers(event, step.after, packet, step.freed, 0))
        return rows


def _busy(steps: Iterator[Step]) -> bool:
    """Return whether an end could send or receive a frame."""
    return any(step.event[0] in BUSY for step in steps)
