"""P4SGD's protocol as published, algorithms 2 and 3, on real frames: its time and its errors.

The model checker has the same algorithms as states (:mod:`fanin.sim.checker.published`) and finds how they
fail. Here they run in simulated time, beside the correct protocols (docs/systems/aggregation.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fanin.base.errors import CheckFailed
from fanin.golden.aggregation import TransportTimeout, Values
from fanin.job import FIRST_JOB, SWITCH, Job, JobCounters, Member, SwitchCounters, default_member
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import Network, NetworkConfig
from fanin.sim.switch.allreduce import AllReduceResult, Int32, Simulation, Worker, split_into_packets
from fanin.sim.switch.base import Delivery, Switch
from fanin.wire.aggregation import AggPacket, Kind, decode_payload, encode, header_length


@dataclass
class _Registers:
    """State of a slot in algorithm 2. The algorithm's counters are the number of bits in the bitmaps."""

    sums: tuple[int, ...] = ()
    agg: int = 0
    ack: int = 0


class PublishedSwitch(Switch):
    """Algorithm 2, for one job whose members are at the ports 0, 1, 2…; it ignores rounds."""

    def __init__(self, program: ProgramConfig):
        self._program = program
        self._header = header_length(program.encap)
        self._members: tuple[Member, ...] = ()
        self._slots: list[_Registers] = []
        self._counters = JobCounters()

    def add_job(self, job: Job) -> None:  # noqa: D102
        self._members, self._all_members = job.members, job.bitmap
        self._slots = [_Registers() for _ in range(job.slots)]

    def remove_job(self, job_id: int) -> None:  # noqa: D102
        self._members = ()

    def job_counters(self, job_id: int) -> JobCounters:  # noqa: D102
        return self._counters

    def counters(self) -> SwitchCounters:  # noqa: D102
        return SwitchCounters()

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:  # noqa: D102
        packet = decode_payload(frame[self._header :], self._program.values)
        answer = (self._add if packet.kind == Kind.AGG else self._acknowledge)(packet)
        if answer is None:
            return []
        return [
            (
                member.port,
                encode(answer, encap=self._program.encap, source=SWITCH, destination=member.endpoint),
                time,
            )
            for member in self._members
        ]

    def _add(self, packet: AggPacket) -> AggPacket | None:
        slot, counters = self._slots[packet.slot], self._counters
        if slot.agg & packet.bitmap:
            counters.duplicate += 1
        else:
            counters.aggregated += 1
            slot.agg |= packet.bitmap
            sums = slot.sums or (0,) * self._program.values
            slot.sums = tuple(a + b for a, b in zip(sums, packet.values, strict=True))
            if slot.agg == self._all_members:
                slot.ack = 0
                counters.results += 1
        return self._answer(packet, Kind.RESULT, slot.sums) if slot.agg == self._all_members else None

    def _acknowledge(self, packet: AggPacket) -> AggPacket | None:
        slot, counters = self._slots[packet.slot], self._counters
        if slot.ack & packet.bitmap:
            counters.duplicate += 1
        else:
            counters.acknowledged += 1
            slot.ack |= packet.bitmap
            if slot.ack == self._all_members:
                slot.agg, slot.sums = 0, ()
                counters.confirms += 1
        return self._answer(packet, Kind.CONFIRM, packet.values) if slot.ack == self._all_members else None

    def _answer(self, packet: AggPacket, kind: Kind, values: Values) -> AggPacket:
        return AggPacket(kind, packet.job, packet.slot, packet.round, self._all_members, values)


@dataclass
class _Slot:
    """A worker's slot in algorithm 3: ``timer`` is the packet that a timeout sends again."""

    free: bool = True
    operation: int = -1  # last operation that used it; not part of the protocol
    timer: AggPacket | None = None
    retries: int = 0


class PublishedEndpoint:
    """Algorithm 3: a worker that accepts every RESULT and CONFIRM for a slot."""

    def __init__(self, *, slots: int, member: int, retries: int, values: int):
        self.submitted = 0
        self._slots = [_Slot() for _ in range(slots)]
        self._member, self._retries, self._values = member, retries, values

    @property
    def idle(self) -> bool:
        """True if no slot is in use."""
        return all(slot.free for slot in self._slots)

    def can_submit(self) -> bool:
        """Return whether the next operation's slot is unused."""
        return self._slots[self.submitted % len(self._slots)].free

    def submit(self, pa: Values) -> list[AggPacket]:
        """Begin an operation; only when :meth:`can_submit`."""
        index = self.submitted % len(self._slots)
        packet = AggPacket(Kind.AGG, FIRST_JOB, index, self.submitted // len(self._slots) + 1, self._member, pa)
        self._slots[index] = _Slot(False, self.submitted, packet)
        self.submitted += 1
        return [packet]

    def receive(self, packet: AggPacket) -> tuple[list[AggPacket], int | None]:
        """Return the answers to a packet, and the operation whose FA it is taken for, or None."""
        slot = self._slots[packet.slot]
        slot.retries = 0
        if packet.kind == Kind.CONFIRM:
            slot.free, slot.timer = True, None
            return [], None
        slot.timer = AggPacket(
            Kind.ACK, FIRST_JOB, packet.slot, packet.round, self._member, (0,) * self._values
        )
        return [slot.timer], slot.operation

    def timeout(self, index: int) -> list[AggPacket]:
        """Return the packets to send when a slot's timer expires. Raises TransportTimeout after all retries."""
        slot = self._slots[index]
        if slot.timer is None:
            return []
        if slot.retries == self._retries:
            raise TransportTimeout(f"slot {index}: unanswered after {self._retries} retries")
        slot.retries += 1
        return [slot.timer]


class PublishedWorker(Worker):
    """A worker of algorithm 3, and the FAs that it has accepted."""

    def __init__(self, number: int, *, program: ProgramConfig, network: NetworkConfig, values: Int32):
        super().__init__(
            number, default_member(number), SWITCH, program=program, network=network, values=values
        )
        self._published = PublishedEndpoint(
            slots=program.slots, member=self.member.bitmap, retries=network.retries, values=program.values
        )
        self.fas: dict[int, Values] = {}  # the first FA of each operation
        self.repeated = 0

    @property
    def endpoint(self) -> PublishedEndpoint:
        """Endpoint that runs algorithm 3 for this worker."""
        return self._published

    def receive(self, frame: bytes, now: int) -> list[bytes]:
        """Receive a frame; return the answers to it, and the operations that may begin after it."""
        packet = self.decode(frame)
        packets, operation = self._published.receive(packet)
        self.timers.stop(packet.slot, Kind(packet.kind), now)
        if operation in self.fas:
            self.repeated += 1
        elif operation is not None:
            self.fas[operation] = packet.values
            self.latencies.append(now - self.begin_times[operation])
        return self.first_frames(packets, now) + self.begin(now)


def published_allreduce(
    contributions: Int32, *, program: ProgramConfig, network: NetworkConfig
) -> AllReduceResult:
    """Add ``contributions`` (a row per worker) by P4SGD's algorithms 2 and 3.

    ``program`` gives slots, values and encapsulation. Errors of the protocol are counted, not raised. ``sums``
    are those of worker 0, with zeros for operations without a sum.
    """
    rows = split_into_packets(contributions, program.values)
    workers = [
        PublishedWorker(number, program=program, network=network, values=row) for number, row in enumerate(rows)
    ]
    switch = PublishedSwitch(program)
    switch.add_job(Job(FIRST_JOB, 0, program.slots, tuple(worker.member for worker in workers)))
    links = Network(
        switch=switch, ports=len(workers), link=network.link, switch_ns=network.switch_ns, seed=network.seed
    )
    simulation = Simulation(list(workers), links)
    gave_up = False
    try:
        simulation.run()
    except CheckFailed:
        gave_up = True
    links.close()
    expected_sums = [tuple(values) for values in rows.sum(axis=0, dtype=np.int64).tolist()]
    zeros = (0,) * program.values
    sums = [workers[0].fas.get(operation, zeros) for operation in range(len(expected_sums))]
    return AllReduceResult(
        sums=np.array(sums, dtype=np.int32).reshape(-1)[: contributions.shape[1]],
        counters=switch.job_counters(FIRST_JOB),
        time_ns=simulation.now / 1000,
        latencies_ns=[latency / 1000 for worker in workers for latency in worker.latencies],
        sent=sum(worker.sent for worker in workers),
        retransmissions=sum(worker.retransmissions for worker in workers),
        wrong=sum(fa != expected_sums[n] for worker in workers for n, fa in worker.fas.items()),
        repeated=sum(worker.repeated for worker in workers),
        lost=sum(len(expected_sums) - len(worker.fas) for worker in workers),
        gave_up=gave_up,
    )
