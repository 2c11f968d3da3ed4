"""A switch in one slot, as a model for the checker: the reference switch, with recognisable contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, product

from fanin.job import Uplink
from fanin.sim.checker.protocol import SUM, Message, SwitchStep, Violation
from fanin.sim.switch.base import Job, Member, SlotRegisters
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, encode, header_length
from fanin.wire.ethernet import Endpoint

JOB = 1
# A sum has a digit for each worker and round: the number of its contributions, below _RADIX even where a wrong
# protocol adds some more than once. Rounds are numbered modulo _ROUNDS, since a wrong protocol's registers may
# hold the previous, the current and the next round. The 15 digits of MAX_WORKERS = 5 workers fit 32 bits.
_RADIX, _ROUNDS = 4, 3


def contribution(worker: int, slot: int, number: int) -> tuple[int, int]:
    """Return a PA of two values: a 1 in the digit of worker and round, and a number of the slot."""
    return _RADIX ** (_ROUNDS * worker + number % _ROUNDS), slot + 1


def total(workers: Iterable[int], slot: int, number: int) -> tuple[int, int]:
    """Return the sum of the contributions of these workers to a round."""
    parts = [contribution(worker, slot, number) for worker in workers]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


class SwitchModel:
    """A switch's steps in a slot: the reference switch, with contributions as digits of the sums.

    Member i is at port i; the parent, if any, at the next port. Workers below the switch are numbered from 0 in
    the order of members.

    - ``sizes``: number of workers below each member; 1: the member is a worker.
    - ``workers``: number of workers of the job.
    - ``slots``: slots of the job.
    - ``is_root``: whether the switch has no parent.
    """

    def __init__(
        self, sizes: Sequence[int], *, workers: int, slots: int, protocol: wire.Protocol, is_root: bool = True
    ):
        self.sizes, self.parent_port, self._workers = tuple(sizes), len(sizes), workers
        offsets = [0, *accumulate(sizes)]
        self._below = [range(first, end) for first, end in pairwise(offsets)]  # workers, per member
        self.size = offsets[-1]
        members = tuple(Member(i, 1 << i, Endpoint(i + 1, i + 1)) for i in range(len(sizes)))
        uplink = None if is_root else Uplink(self.parent_port, 1, Endpoint(0xFE, 0xFE))
        self._switch = ReferenceSwitch(
            endpoint=Endpoint(0xFF, 0xFF), ports=len(sizes) + 1, values=2, protocol=protocol
        )
        self._switch.add_job(Job(JOB, 0, slots, members, uplink))
        self._has_parent, self._all = not is_root, (1 << len(sizes)) - 1
        self._kinds = (*protocol.to_switch, *(() if is_root else protocol.to_worker))

    def slot(self) -> SlotRegisters:
        """Return the initial state of a slot."""
        return SlotRegisters(0, 0, (), 0, 0)

    def arrive(self, state: SlotRegisters, slot: int, port: int, message: Message) -> SwitchStep:
        """Return the slot's step for a message at a port; sent messages are named by their ports.

        Raises Violation if a packet leaves with another sum than that of its round: an AGG to the parent of all
        workers below this switch, a RESULT of all workers.
        """
        self._switch.set_registers(JOB, slot, state)
        values = (0, 0)
        if message.kind is Kind.AGG:
            values = total(self._below[port], slot, message.round)
        elif message.kind is Kind.RESULT:
            values = total(range(self._workers), slot, message.round)
        bitmap = 1 if port == self.parent_port else 1 << port
        packet = AggPacket(message.kind, JOB, slot, message.round, bitmap, values)
        frame = encode(packet, encap=Encap.L2, source=Endpoint(port + 1, 0), destination=Endpoint(0xFF, 0))
        sent = []
        for receiver, reply_frame, _ in self._switch.inject(port, frame, 0):
            reply = decode_payload(reply_frame[header_length(Encap.L2) :], 2)
            self._check_sum(reply, slot)
            sent.append((receiver, Message(Kind(reply.kind), reply.round)))
        return SwitchStep(self._switch.registers(JOB, slot), tuple(sent))

    def ignores_late_packets(self, rounds: int) -> bool:
        """Return whether packets of finished steps have no effect, in every state up to round ``rounds``.

        An answer of the parent must change nothing and cause no packet; a member's request may only be answered
        to that member. The search then removes such packets at once.
        """
        return all(
            self._is_ignored(state, kind, number)
            for state in self._states(rounds)
            for kind in self._kinds
            for number in range(1, rounds + 1)
            if self.is_late(state, Message(kind, number))
        )

    def is_late(self, state: SlotRegisters, message: Message) -> bool:
        """Return whether the step that a message belongs to is finished at this switch.

        The step of AGG and RESULT is finished once the sum of all workers is known; that of ACK and CONFIRM,
        once all workers have acknowledged.
        """
        if message.kind in (Kind.AGG, Kind.RESULT):
            finished = state.seen == self._all and (state.total or not self._has_parent)
            return (state.round, finished) >= (message.round, True)
        if message.kind is Kind.CONFIRM and state.round > message.round:
            return True
        finished = state.ack_seen == self._all and (state.confirmed or not self._has_parent)
        return (state.ack_round, finished) >= (message.round, True)

    def _is_ignored(self, state: SlotRegisters, kind: Kind, number: int) -> bool:
        ports = range(self.parent_port) if kind in (Kind.AGG, Kind.ACK) else [self.parent_port]
        for port in ports:
            try:
                step = self.arrive(state, 0, port, Message(kind, number))
            except Violation:
                return False
            if step.state != state or any(
                receiver != port or port == self.parent_port for receiver, _ in step.sent
            ):
                return False
        return True

    def _states(self, rounds: int) -> Iterator[SlotRegisters]:
        """Yield all states of a slot from round 1 to ``rounds``, with right sums; also some out of reach."""
        sets, marks = range(1, self._all + 1), (False, True) if self._has_parent else (False,)
        for number, seen, answered, confirmed in product(range(1, rounds + 1), sets, marks, marks):
            sums = total(range(self._workers if answered else self.size), 0, number)
            for ack_round, ack_seen in product((number - 1, number), sets):
                yield SlotRegisters(number, seen, sums, ack_round, ack_seen, answered, confirmed)

    def _check_sum(self, packet: AggPacket, slot: int) -> None:
        workers = {Kind.AGG: self.size, Kind.RESULT: self._workers}.get(Kind(packet.kind))
        if workers and tuple(packet.values) != total(range(workers), slot, packet.round):
            name = Kind(packet.kind).name
            raise Violation(SUM, f"the {name} of slot {slot}, round {packet.round}, has another sum")

    def renamed(self, state: SlotRegisters, members: Sequence[int], workers: Sequence[int]) -> SlotRegisters:
        """Return a slot's state after renamings.

        Member i becomes ``members[i]``; worker w below the switch becomes ``workers[w]``.
        """

        def bits(bitmap: int) -> int:
            return sum(1 << name for member, name in enumerate(members) if bitmap >> member & 1)

        sums = state.sums
        if sums:
            width = _RADIX**_ROUNDS
            digits = [sums[0] // width**worker % width for worker in range(self._workers)]
            names = [*workers, *range(self.size, self._workers)]  # a tree's total has digits of all workers
            sums = (sum(digit * width**name for digit, name in zip(digits, names, strict=True)), *sums[1:])
        return state._replace(seen=bits(state.seen), sums=sums, ack_seen=bits(state.ack_seen))
