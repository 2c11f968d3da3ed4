"""AllReduces without hardware: the golden model's workers, links, and a switch, in simulated time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.golden.aggregation import TransportTimeout, Values, Verdict, WorkerEndpoint
from fanin.job import FIRST_JOB, SWITCH, Job, JobCounters, Member, default_member
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import Network, NetworkConfig
from fanin.sim.switch.base import Switch
from fanin.sim.switch.timers import Timers
from fanin.sim.tree import SwitchTree, TreeNetwork
from fanin.wire import ethernet
from fanin.wire.aggregation import AggPacket, Kind, decode_payload, encode, header_length

Int32 = npt.NDArray[np.int32]


class Endpoint(Protocol):
    """A worker's end of a protocol: :class:`fanin.golden.aggregation.WorkerEndpoint` is one."""

    submitted: int

    @property
    def idle(self) -> bool:
        """True if no slot is in use."""

    def can_submit(self) -> bool:
        """Return whether the next operation may begin."""

    def submit(self, pa: Values) -> list[AggPacket]:
        """Begin the next operation; return its packets."""

    def timeout(self, index: int) -> list[AggPacket]:
        """Return the packets to send when a slot's timer expires. Raises TransportTimeout."""


@dataclass
class AllReduceResult:
    """Result of an AllReduce: ``sums`` as the workers have them, times in nanoseconds."""

    sums: Int32
    counters: JobCounters
    time_ns: float  #: time when the last worker had all sums
    latencies_ns: list[float]  #: per operation and worker: from its AGG to its sum
    sent: int  #: packets of the workers, with retransmissions
    retransmissions: int
    verdicts: dict[Verdict, int] = field(default_factory=dict)  #: on the packets that workers received
    # Errors of a protocol that does not hold, summed over workers:
    wrong: int = 0  #: sums that are not the operation's
    repeated: int = 0  #: sums that were delivered again
    lost: int = 0  #: operations without a sum
    gave_up: bool = False  #: a packet was not answered after all retries, and the job ended
    #: of a tree: counters of each switch by its name
    switches: dict[str, dict[str, int]] = field(default_factory=dict)
    #: of a tree: counters of the links between switches, by switch and direction
    trunks: dict[str, dict[str, int]] = field(default_factory=dict)


def allreduce(
    contributions: Int32,
    *,
    switch: Switch | SwitchTree,
    program: ProgramConfig,
    network: NetworkConfig,
    capture: Callable[[bytes, int], None] | None = None,
) -> AllReduceResult:
    """Add ``contributions`` (a row per worker) through ``switch``, which runs ``program`` and has no job.

    A tree of switches has its job already, of as many workers. Each worker keeps as many packets in flight as
    ``program`` has slots. ``capture``: of the frames at a single switch. Raises CheckFailed if a packet was
    given up, or workers ended with different sums.
    """
    rows = split_into_packets(contributions, program.values)
    settings: dict[str, Any] = {"link": network.link, "switch_ns": network.switch_ns, "seed": network.seed}
    links: Network
    if isinstance(switch, SwitchTree):
        root, ends = switch.switches[0], switch.tree.workers
        links = TreeNetwork(tree=switch, **settings)
    else:
        root, ends = switch, tuple((default_member(number), SWITCH) for number in range(len(rows)))
        links = Network(switch=root, ports=len(rows), capture=capture, **settings)
    workers = [
        Worker(number, *end, program=program, network=network, values=row)
        for number, (row, end) in enumerate(zip(rows, ends, strict=True))
    ]
    if not isinstance(switch, SwitchTree):
        switch.add_job(Job(FIRST_JOB, 0, program.slots, tuple(worker.member for worker in workers)))
    time = Simulation(workers, links).run()
    links.close()
    sums = [np.array(worker.received, dtype=np.int32).reshape(-1) for worker in workers]
    if any((other != sums[0]).any() for other in sums[1:]):
        raise CheckFailed("workers ended with different sums")
    return AllReduceResult(
        sums=sums[0][: contributions.shape[1]],
        counters=root.job_counters(FIRST_JOB),
        time_ns=time / 1000,
        latencies_ns=[latency / 1000 for worker in workers for latency in worker.latencies],
        sent=sum(worker.sent for worker in workers),
        retransmissions=sum(worker.retransmissions for worker in workers),
        verdicts={verdict: sum(worker.verdicts[verdict] for worker in workers) for verdict in Verdict},
        switches=switch.counters() if isinstance(switch, SwitchTree) else {},
        trunks=links.trunk_statistics() if isinstance(links, TreeNetwork) else {},
    )


def split_into_packets(contributions: Int32, values: int) -> npt.NDArray[np.int32]:
    """Return an array worker × packet × value, padded with zeros."""
    workers, count = contributions.shape
    packets = -(-count // values)
    padded = np.zeros((workers, packets * values), dtype=np.int32)
    padded[:, :count] = contributions
    return padded.reshape(workers, packets, values)


class Worker:
    """A worker's endpoint, its values, and the timers of its slots. Times in picoseconds.

    - ``number``: number of the worker, which is its port of the network.
    - ``member``, ``switch``: the worker at its switch, and that switch's addresses.
    - ``values``: a row per packet.
    """

    def __init__(
        self,
        number: int,
        member: Member,
        switch: ethernet.Endpoint,
        *,
        program: ProgramConfig,
        network: NetworkConfig,
        values: Int32,
    ):
        self.member = member
        self.number, self._switch = number, switch
        self.values = values
        self.received: list[tuple[int, ...]] = []
        self.timers = Timers(network)
        self.sent = self.retransmissions = 0
        self.verdicts = dict.fromkeys(Verdict, 0)
        self.latencies: list[int] = []
        self.begin_times: list[int] = []
        self._program = program
        self._header = header_length(program.encap)
        self._golden = WorkerEndpoint(
            job=FIRST_JOB,
            base=0,
            slots=program.slots,
            member=self.member.bitmap,
            protocol=program.protocol,
            retries=network.retries,
            values=program.values,
        )

    @property
    def endpoint(self) -> Endpoint:
        """Endpoint that runs the protocol for this worker."""
        return self._golden

    @property
    def done(self) -> bool:
        """True if all operations have begun and no slot is in use."""
        return self.endpoint.submitted == len(self.values) and self.endpoint.idle

    def begin(self, now: int) -> list[bytes]:
        """Return the AGGs of all operations that may begin now."""
        packets: list[AggPacket] = []
        while self.endpoint.submitted < len(self.values) and self.endpoint.can_submit():
            packets += self.endpoint.submit(tuple(self.values[self.endpoint.submitted].tolist()))
            self.begin_times.append(now)
        return self.first_frames(packets, now)

    def receive(self, frame: bytes, now: int) -> list[bytes]:
        """Receive a frame; return the answers to it, and the operations that may begin after it."""
        packet = self.decode(frame)
        answer = self._golden.receive(packet)
        self.verdicts[answer.verdict] += 1
        if answer.verdict in (Verdict.RESULT, Verdict.CONFIRM):
            self.timers.stop(packet.slot, Kind(packet.kind), now)
        for sums in answer.delivered:
            self.latencies.append(now - self.begin_times[len(self.received)])
            self.received.append(sums)
        return self.first_frames(answer.packets, now) + self.begin(now)

    def decode(self, frame: bytes) -> AggPacket:
        """Return the packet in a frame."""
        return decode_payload(frame[self._header :], self._program.values)

    def expire(self, slot: int, now: int) -> list[bytes]:
        """Return a slot's packet after its deadline has passed. Raises CheckFailed after all retries."""
        try:
            packets = self.endpoint.timeout(slot)
        except TransportTimeout as error:
            raise CheckFailed(f"worker {self.number}: {error}") from error
        self.retransmissions += len(packets)
        for packet in packets:
            self.timers.restart(packet.slot, now)
        return self._frames(packets)

    def first_frames(self, packets: Sequence[AggPacket], now: int) -> list[bytes]:
        """Return packets that are sent for the first time as frames, and start their timers."""
        for packet in packets:
            self.timers.start(packet.slot, now)
        return self._frames(packets)

    def _frames(self, packets: Sequence[AggPacket]) -> list[bytes]:
        self.sent += len(packets)
        ends = {"source": self.member.endpoint, "destination": self._switch}
        return [encode(packet, encap=self._program.encap, **ends) for packet in packets]


class Simulation:
    """Event loop in order of time: a frame reaches a worker, or a deadline passes. The retries bound it."""

    def __init__(self, workers: list[Worker], links: Network):
        self._workers, self._links = workers, links
        self.now = 0
        self._order = itertools.count()
        self._events: list[tuple[int, int, int, bytes | int]] = []  # time, order, worker, frame or slot

    def run(self) -> int:
        """Run until every worker has finished; return that time. Raises CheckFailed if a packet is given up."""
        for worker in self._workers:
            self._send(worker, worker.begin(self.now), self.now)
        unfinished = {number for number, worker in enumerate(self._workers) if not worker.done}
        while unfinished:
            arrival_time = self._links.next_time
            if arrival_time is not None and arrival_time <= self._events[0][0]:
                self._forward(arrival_time)
                continue
            self.now, _, number, event = heapq.heappop(self._events)
            worker = self._workers[number]
            if isinstance(event, bytes):
                self._send(worker, worker.receive(event, self.now), self.now)
            elif worker.timers.deadlines.get(event) == self.now:
                self._send(worker, worker.expire(event, self.now), self.now)
            if worker.done:
                unfinished.discard(number)
        return self.now

    def _forward(self, time: int) -> None:
        for reception in self._links.advance(time):
            if not reception.arrival.error:
                self._add(reception.arrival.time, reception.port, reception.arrival.frame)

    def _send(self, worker: Worker, frames: list[bytes], now: int) -> None:
        for frame in frames:
            self._links.send(worker.number, frame, now)
        for slot, deadline in worker.timers.unscheduled.items():
            self._add(deadline, worker.number, slot)
        worker.timers.unscheduled.clear()

    def _add(self, time: int, worker: int, event: bytes | int) -> None:
        heapq.heappush(self._events, (time, next(self._order), worker, event))
