"""Worker's end of the aggregation protocol (docs/systems/aggregation.md), in plain Python.

An operation is one AllReduce in a slot of the switch. The worker sends its partial activations (PA) in an AGG.
The switch answers all workers with their sum (FA) in a RESULT. In P4SGD's protocol the worker then sends an
ACK, and the slot is free when the switch confirms that all workers have sent theirs (CONFIRM). Operations take
the slots in turn; the round counts the uses of a slot.

The model makes the same decisions as the RTL (:mod:`fanin.hdl.aggregation.transport`), which is compared with
it, but has no timing. The model checker uses it as its worker: :meth:`WorkerEndpoint.snapshot` returns a
hashable state for :meth:`WorkerEndpoint.restore`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from fanin.wire.aggregation import DEFAULT_VALUES, ROUND_MAX, VERSION, AggPacket, Kind, Protocol

Values = tuple[int, ...]


class State(Enum):
    """State of a slot, named after the packet that it waits for."""

    FREE = "free"
    WAIT_RESULT = "wait_result"
    WAIT_CONFIRM = "wait_confirm"


class Verdict(Enum):
    """Classification of a received packet; the values are names of the transport's counters."""

    RESULT = "results"
    CONFIRM = "confirms"
    DUPLICATE = "duplicates"
    STALE = "stale"
    MALFORMED = "malformed"
    OTHER_JOB = "other_job"
    SLOT_RANGE = "slot_range"


class TransportTimeout(Exception):
    """A packet stayed unanswered after all its retransmissions."""


class RoundWrap(Exception):
    """All rounds of the job are used up."""


class Slot(NamedTuple):
    """One slot: its state, the round of its current or last use, and its values."""

    state: State = State.FREE
    round: int = 0
    pa: Values = ()  # kept until its RESULT arrives
    fa: Values = ()  # kept from its RESULT until it is delivered
    retries: int = 0  # retransmissions of the last packet


class Snapshot(NamedTuple):
    """Complete state of an endpoint."""

    submitted: int
    delivered: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Received:
    """Effect of a received packet: its classification, ``packets`` to send, and ``delivered`` FAs in order."""

    verdict: Verdict
    packets: tuple[AggPacket, ...] = ()
    delivered: tuple[Values, ...] = ()


class WorkerEndpoint:
    """Endpoint of a worker in a job.

    - ``member``: the worker's one-hot bit.
    - ``retries``: R, retransmissions of a packet until TransportTimeout.
    - ``base``, ``slots``: first slot of the job at the switch, and number of slots.
    - ``window``: operations in flight, at most.
    """

    def __init__(
        self,
        *,
        job: int,
        base: int,
        slots: int,
        member: int,
        protocol: Protocol = Protocol.P4SGD,
        retries: int = 1000,
        values: int = DEFAULT_VALUES,
        first_round: int = 1,
    ):
        self.protocol, self.window = protocol, slots // protocol.slots_per_operation
        if not self.window:
            raise ValueError(f"slots must be at least {protocol.slots_per_operation}, not {slots!r}")
        self.job, self.base, self.member, self.retries, self.values = job, base, member, retries, values
        self.submitted = self.delivered = 0
        self._first_round = first_round
        self._slots = [Slot(round=first_round - 1)] * slots

    def snapshot(self) -> Snapshot:
        """Return the endpoint's state, which is hashable."""
        return Snapshot(self.submitted, self.delivered, tuple(self._slots))

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from an earlier state of an endpoint with the same parameters."""
        self.submitted, self.delivered = snapshot.submitted, snapshot.delivered
        self._slots = list(snapshot.slots)

    @property
    def idle(self) -> bool:
        """True if no slot is in use."""
        return all(slot.state is State.FREE for slot in self._slots)

    def waiting(self) -> list[int]:
        """Return the indices of slots whose timer is running."""
        return [index for index, slot in enumerate(self._slots) if slot.state is not State.FREE]

    def can_submit(self) -> bool:
        """Return whether the next slot is free, and the FA of the operation one window earlier is delivered."""
        if self._next_round() > ROUND_MAX:
            return False
        slot = self._slots[self.submitted % len(self._slots)]
        return slot.state is State.FREE and self.submitted - self.delivered < self.window

    def submit(self, pa: Values) -> list[AggPacket]:
        """Begin an operation; requires :meth:`can_submit`. Raises RoundWrap if no round is left."""
        number = self._next_round()
        if number > ROUND_MAX:
            raise RoundWrap(f"operation {self.submitted} needs round {number}")
        if not self.can_submit():
            raise ValueError(f"the slot of operation {self.submitted} is in use")
        index = self.submitted % len(self._slots)
        self.submitted += 1
        self._slots[index] = Slot(State.WAIT_RESULT, number, pa=pa)
        return [self._packet(index)]

    def receive(self, packet: AggPacket) -> Received:
        """Handle a packet; return the ACK to send, if any, and the FAs that can be delivered now."""
        verdict = self._judge(packet)
        index = packet.slot - self.base
        if verdict is Verdict.CONFIRM:
            self._slots[index] = self._slots[index]._replace(state=State.FREE)
        if verdict is not Verdict.RESULT:
            return Received(verdict)
        acknowledges = self.protocol.acknowledges
        state = State.WAIT_CONFIRM if acknowledges else State.FREE
        self._slots[index] = Slot(state, packet.round, fa=packet.values)
        packets = (self._packet(index),) if acknowledges else ()
        return Received(verdict, packets, tuple(self._deliver()))

    def timeout(self, index: int) -> list[AggPacket]:
        """Handle a timeout of slot ``base + index``. Raises TransportTimeout after R retransmissions."""
        slot = self._slots[index]
        if slot.state is State.FREE:
            return []
        if slot.retries == self.retries:
            raise TransportTimeout(f"slot {self.base + index}: unanswered after {self.retries} retries")
        self._slots[index] = slot._replace(retries=slot.retries + 1)
        return [self._packet(index)]

    def _next_round(self) -> int:
        return self.submitted // len(self._slots) + self._first_round

    def _packet(self, index: int) -> AggPacket:
        slot = self._slots[index]
        packet = AggPacket(Kind.ACK, self.job, self.base + index, slot.round, self.member, (0,) * self.values)
        return replace(packet, kind=Kind.AGG, values=slot.pa) if slot.state is State.WAIT_RESULT else packet

    def _judge(self, packet: AggPacket) -> Verdict:
        if packet.version != VERSION or packet.kind not in self.protocol.to_worker or not packet.round:
            return Verdict.MALFORMED
        if packet.job != self.job:
            return Verdict.OTHER_JOB
        if not 0 <= packet.slot - self.base < len(self._slots):
            return Verdict.SLOT_RANGE
        slot = self._slots[packet.slot - self.base]
        if packet.round != slot.round:
            return Verdict.STALE
        if packet.kind == Kind.RESULT:
            return Verdict.RESULT if slot.state is State.WAIT_RESULT else Verdict.DUPLICATE
        if slot.state is State.WAIT_RESULT:
            return Verdict.STALE
        return Verdict.CONFIRM if slot.state is State.WAIT_CONFIRM else Verdict.DUPLICATE

    def _deliver(self) -> list[Values]:
        """Return the FAs that are next in order."""
        delivered = []
        while self.delivered < self.submitted:
            index = self.delivered % len(self._slots)
            slot = self._slots[index]
            if not slot.fa:
                break
            delivered.append(slot.fa)
            self._slots[index] = slot._replace(fa=())
            self.delivered += 1
        return delivered
