"""P4SGD and SwitchML as models for the checker, on the golden worker and the reference switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.golden.aggregation import Snapshot, State, WorkerEndpoint
from fanin.sim.checker.protocol import ONCE, SUM, Message, ProtocolModel, Step, SwitchStep, Violation
from fanin.sim.switch.base import Job, Member, SlotRegisters
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, encode, header_length
from fanin.wire.ethernet import Endpoint

JOB = 1
# Radix of a digit of the sum. A digit holds up to 3 contributions of one worker and round. Three rounds are
# distinguished: the previous, the current and the next one. The contributions of 5 workers fit 32 bits.
_CONTRIBUTIONS = 4


def contribution(worker: int, slot: int, number: int) -> tuple[int, int]:
    """Return a PA of two values: a digit that encodes worker and round, and the slot."""
    return _CONTRIBUTIONS ** (3 * worker + number % 3), slot + 1


def total(workers: int, slot: int, number: int) -> tuple[int, int]:
    """Return the sum of all contributions of a round."""
    parts = [contribution(worker, slot, number) for worker in range(workers)]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


class Rounds(ProtocolModel):
    """Protocols P4SGD (corrected) and SwitchML, executed on the golden worker and the reference switch.

    A step sets the state of ``WorkerEndpoint`` (``fanin.golden.aggregation``) or ``ReferenceSwitch``
    (``fanin.sim.switch.reference``), calls it and reads the state back. Retransmissions are not counted, so no
    worker gives up. ``slots`` must be a power of two.
    """

    def __init__(self, *, workers: int, slots: int, rounds: int, protocol: wire.Protocol = wire.Protocol.P4SGD):
        super().__init__(workers=workers, slots=slots, rounds=rounds)
        if slots & (slots - 1):
            raise ValueError(f"slots must be a power of two, not {slots!r}")
        self.slots *= protocol.slots_per_operation
        parameters: dict[str, Any] = {"values": 2, "protocol": protocol}
        self._endpoint = WorkerEndpoint(job=JOB, base=0, slots=self.slots, member=1, **parameters)
        # Whether a worker that waits on a slot keeps all workers from its next round: see ``is_alone``.
        self._waiting_blocks_reuse = not protocol.acknowledges and self._most_in_flight() <= slots
        members = tuple(Member(w, 1 << w, Endpoint(w + 1, w + 1)) for w in range(workers))
        self._switch = ReferenceSwitch(endpoint=Endpoint(0xFF, 0xFF), ports=workers, **parameters)
        self._switch.add_job(Job(JOB, 0, self.slots, members))
        self._all = (1 << workers) - 1

    def worker(self) -> Snapshot:  # noqa: D102
        return self._endpoint.snapshot()

    def slot(self) -> SlotRegisters:  # noqa: D102
        return self._switch.registers(JOB, 0)

    def submit(self, worker: Snapshot) -> tuple[int, Step] | None:  # noqa: D102
        endpoint = self._endpoint
        endpoint.restore(worker)
        if worker.submitted == self.slots * self.rounds or not endpoint.can_submit():
            return None
        slot, number = worker.submitted % self.slots, worker.submitted // self.slots + 1
        (packet,) = endpoint.submit(contribution(0, slot, number))
        return slot, self._step(packet)

    def timeout(self, worker: Snapshot, slot: int) -> Step | None:  # noqa: D102
        self._endpoint.restore(worker)
        packets = self._endpoint.timeout(slot)
        return self._step(*packets) if packets else None

    def receive(self, worker: Snapshot, slot: int, message: Message) -> Step:  # noqa: D102
        self._endpoint.restore(worker)
        values = total(self.workers, slot, message.round)
        received = self._endpoint.receive(AggPacket(message.kind, JOB, slot, message.round, self._all, values))
        for number, fa in enumerate(received.delivered, start=worker.delivered):
            if fa != total(self.workers, number % self.slots, number // self.slots + 1):
                raise Violation(ONCE, f"another FA stands in for that of operation {number}")
        return self._step(*received.packets)

    def switch(self, state: SlotRegisters, slot: int, sender: int, message: Message) -> SwitchStep:  # noqa: D102
        self._switch.set_registers(JOB, slot, state)
        values = contribution(sender, slot, message.round) if message.kind is Kind.AGG else (0, 0)
        packet = AggPacket(message.kind, JOB, slot, message.round, 1 << sender, values)
        frame = encode(packet, encap=Encap.L2, source=Endpoint(sender + 1, 0), destination=Endpoint(0xFF, 0))
        sent = []
        for port, reply_frame, _ in self._switch.inject(sender, frame, 0):
            reply = decode_payload(reply_frame[header_length(Encap.L2) :], 2)
            if reply.kind == Kind.RESULT and tuple(reply.values) != total(self.workers, slot, reply.round):
                raise Violation(SUM, f"the RESULT of slot {slot}, round {reply.round}, has another sum")
            sent.append((port, Message(Kind(reply.kind), reply.round)))
        return SwitchStep(self._switch.registers(JOB, slot), tuple(sent))

    def done(self, worker: Snapshot) -> bool:  # noqa: D102
        self._endpoint.restore(worker)
        return worker.delivered == self.slots * self.rounds and self._endpoint.idle

    def is_waiting(self, worker: Snapshot, slot: int, number: int) -> bool:  # noqa: D102
        use = worker.slots[slot]
        return use.round < number or (use.round == number and use.state is State.WAIT_RESULT)

    def is_alone(self, workers: Sequence[Snapshot], slot: int) -> bool:
        """Return whether no event on other slots enables a worker to use ``slot``.

        Without acknowledgements this also holds while a worker waits on the slot: a worker begins operation
        n + 2N only with the RESULT of n + N. All workers have contributed to n + N, and each had received the
        FA of n before. Precondition: no worker begins with N operations in flight; no RESULT has a wrong sum.
        """
        uses = [worker.slots[slot] for worker in workers]
        awaited_rounds = {
            use.round for use in uses if use.state is not State.FREE and self._waiting_blocks_reuse
        }
        return all(
            use.round in awaited_rounds or self.is_alone_for(worker, slot)
            for use, worker in zip(uses, workers, strict=True)
        )

    def is_alone_for(self, worker: Snapshot, slot: int) -> bool:  # noqa: D102
        use, endpoint = worker.slots[slot], self._endpoint
        if use.state is not State.FREE or use.round == self.rounds:
            return True
        endpoint.restore(worker)
        return slot == worker.submitted % self.slots and endpoint.can_submit()

    def renamed(self, state: SlotRegisters, names: tuple[int, ...]) -> SlotRegisters:  # noqa: D102
        def bits(bitmap: int) -> int:
            return sum(1 << name for worker, name in enumerate(names) if bitmap >> worker & 1)

        sums = state.sums
        if sums:
            digits = [sums[0] // _CONTRIBUTIONS ** (3 * w) % _CONTRIBUTIONS**3 for w in range(self.workers)]
            permuted = sum(d * _CONTRIBUTIONS ** (3 * name) for d, name in zip(digits, names, strict=True))
            sums = (permuted, *sums[1:])
        return state._replace(seen=bits(state.seen), sums=sums, ack_seen=bits(state.ack_seen))

    def is_useless(self, worker: Snapshot, slot: int, message: Message) -> bool:
        """Rounds and states only increase, and the switch answers a late request to its sender only."""
        use = worker.slots[slot]
        if message.round != use.round:
            return message.round < use.round
        if message.kind in (Kind.AGG, Kind.RESULT):
            return use.state is not State.WAIT_RESULT
        return use.state is State.FREE

    def _most_in_flight(self) -> int:
        """Return the number of operations that a worker begins before it needs an FA."""
        endpoint, submitted = self._endpoint, 0
        start = endpoint.snapshot()
        while endpoint.can_submit():
            endpoint.submit((0, 0))
            submitted += 1
        endpoint.restore(start)
        return submitted

    def _step(self, *packets: AggPacket) -> Step:
        state = self._endpoint.snapshot()
        state = state._replace(slots=tuple(slot._replace(retries=0) for slot in state.slots))
        return Step(state, *(Message(Kind(packet.kind), packet.round) for packet in packets))
