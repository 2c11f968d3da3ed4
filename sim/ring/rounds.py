"""Exchanges in groups at simulated ring nodes: each node carries out one job after the other.

docs/systems/ring-groups.md, "Jobs", explains how hosts keep jobs apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.hdl.ring.registers import Failure
from fanin.host.causes import explain
from fanin.job import worker_endpoint
from fanin.ring.driver import RingDriver, RingMember
from fanin.ring.golden.groups import job_bits
from fanin.ring.groups import BARRIER, Plan, Ring
from fanin.sim.cosim.live import Board, Callback
from fanin.sim.cosim.program import HostProgram
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING

Float32 = npt.NDArray[np.float32]

TIMEOUT = 4000  # cycles: several round trips of a hop
RETRIES = 50  # with TIMEOUT, a silent node ends the run after 200,000 cycles
JOBS = 1 << field_bits(RING, "job")
_PS = 1e12


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Settings of all jobs.

    - ``barrier``: seconds before each job.
    - ``timeout``: cycles until an unacknowledged frame is sent again.
    - ``retries``: retransmissions of a frame until a node fails.
    - ``rounding_seed``, ``first_job``: seed of stochastic rounding, and number of the first job for it.

    Raises ValueError for a barrier below 0.
    """

    barrier: float = BARRIER
    timeout: int = TIMEOUT
    retries: int = RETRIES
    rounding_seed: int = 1
    first_job: int = 0

    def __post_init__(self) -> None:
        if not self.barrier >= 0:
            raise ValueError(f"barrier must be at least 0 seconds, not {self.barrier!r}")


@dataclass
class RoundFigures:
    """Figures of one round, summed over all exchanges.

    - ``level``: the round's level in the plan.
    - ``seconds``: time from the end of the barrier until all hosts know that their jobs are complete.
    - ``data_bytes``: bytes of DATA frames, without FCS; retransmissions are not counted.
    """

    level: str
    seconds: float = 0.0
    data_bytes: int = 0


def job_program(driver: RingDriver, member: RingMember, address: int, count: int) -> HostProgram:
    """Return a node's program for a job, from configuration to end.

    Its reads are one word of the status, followed by those of ``driver.wait()``.
    """
    program = HostProgram()
    for batch in driver.configure(member), driver.start():
        program.extend(batch.operations)
    program.poll_field(driver.registers, "status", "busy", 0)
    program.extend(driver.post(address, count).operations)
    program.await_change(driver.registers, "status", completed_low=0, failed=0, refused_any=0)
    return program.extend(driver.wait().operations)


@dataclass(frozen=True)
class BeginRound:
    """Order: begin a round of an exchange.

    - ``exchange``, ``round``, ``job``: numbers, from 0; a job's number is unique in the run.
    - ``address``, ``count``: first byte of the vector at every node, and its values.
    - ``at``: begin in ps.
    """

    exchange: int
    round: int
    job: int
    address: int
    count: int
    at: int


@dataclass(frozen=True)
class ReadSent:
    """Order to the hosts of a finished round: read the nodes' counters of sent frames."""

    round: int


@dataclass(frozen=True)
class End:
    """Order: no further exchange follows."""


@dataclass(frozen=True)
class ExchangePosted:
    """Fact: a worker's host has posted its next exchange, of ``count`` values from ``address``."""

    address: int
    count: int


@dataclass(frozen=True)
class WorkerFinished:
    """Fact: a worker's host will post no further exchange."""


@dataclass(frozen=True)
class JobEnded:
    """Fact: a node's job of the round is complete; ``begin``: start of the round in ps."""

    begin: int


@dataclass(frozen=True)
class BytesSent:
    """Fact: a node has sent ``data_bytes`` of DATA frames in a round."""

    round: int
    data_bytes: int


Order = BeginRound | ReadSent | End
Fact = ExchangePosted | WorkerFinished | JobEnded | BytesSent


class Controller:
    """Controller of rounds at rank 0: starts rounds on facts from hosts, and collects their figures.

    An exchange begins when all workers have posted it and the previous one has finished. Its rounds follow each
    other, ``barrier`` seconds apart.
    """

    def __init__(self, board: Board, plan: Plan, barrier: float):
        self._board, self._plan, self._barrier = board, plan, round(barrier * _PS)
        self._posted_exchanges: list[deque[ExchangePosted]] = [deque() for _ in range(plan.workers)]
        self._current: ExchangePosted | None = None  # exchange in progress
        self._round = 0  # number of the round in its exchange
        self._unfinished = 0  # jobs of the round in progress
        self._unread = 0  # nodes whose sent bytes have not been read
        self._finished_workers = 0
        self._exchanges = self._jobs = 0  # numbers of the next exchange and job
        self.figures = [RoundFigures(plan_round.level) for plan_round in plan.rounds]

    def handle(self, node: int, fact: Fact) -> None:
        """Handle a fact from a host."""
        match fact:
            case ExchangePosted():
                self._posted_exchanges[node].append(fact)
                self._begin_exchange()
            case WorkerFinished():
                self._finished_workers += 1
            case JobEnded(begin):
                self._unfinished -= 1
                if not self._unfinished:
                    self._end_round(begin)
            case BytesSent(number, data_bytes):
                self.figures[number].data_bytes += data_bytes
                self._unread -= 1
        if self._finished_workers == self._plan.workers and not self._current and not self._unread:
            self._board.order(End())

    def _begin_exchange(self) -> None:
        """Begin the next exchange, if none is in progress and every worker has posted it."""
        if self._current or not all(self._posted_exchanges):
            return
        self._current, *_ = [queue.popleft() for queue in self._posted_exchanges]
        self._round = 0
        self._begin_round()

    def _begin_round(self) -> None:
        """Order the next round, after all nodes have reached the barrier."""
        assert self._current is not None
        self._unfinished = len(self._members)
        at = self._board.told_at + self._barrier
        exchange = self._current
        self._board.order(
            BeginRound(self._exchanges, self._round, self._jobs, exchange.address, exchange.count, at)
        )
        self._jobs += 1

    def _end_round(self, begin: int) -> None:
        self.figures[self._round].seconds += (self._board.told_at - begin) / _PS
        self._unread += len(self._members)
        self._board.order(ReadSent(self._round))
        self._round += 1
        if self._round < len(self._plan.rounds):
            self._begin_round()
            return
        self._current = None
        self._exchanges += 1
        self._begin_exchange()

    @property
    def _members(self) -> list[int]:
        return [node for ring in self._plan.rounds[self._round].rings for node in ring.members]


@dataclass(frozen=True)
class _Posted:
    """A posted vector, and the callback for its sum."""

    vector: Float32
    on_sum: Callback


class Rounds:
    """Exchanges of a plan at the nodes of one rank, by order of the controller at rank 0.

    - ``name``: returns an exchange's name by number, for messages.
    - ``is_cut``: returns whether a node's link is cut.

    Pass facts to ``handle`` at rank 0, and orders to ``obey`` at all ranks. Callbacks raise CheckFailed when a
    job fails.
    """

    def __init__(
        self,
        board: Board,
        driver: RingDriver,
        plan: Plan,
        settings: JobSettings,
        *,
        name: Callable[[int], str],
        is_cut: Callable[[int], bool] = lambda node: False,
    ):
        self._board, self._driver, self._plan, self._settings = board, driver, plan, settings
        self._name, self._is_cut = name, is_cut
        self._posted: dict[int, deque[_Posted]] = {node: deque() for node in board.nodes if node < plan.workers}
        self._vectors: dict[int, Float32] = {}  # by node: its vector in the exchange in progress
        self._sent = dict.fromkeys(board.nodes, 0)  # bytes of DATA frames so far
        self._controller = Controller(board, plan, settings.barrier)
        #: Whether no further exchange follows.
        self.finished = False

    def post(self, worker: int, address: int, vector: Float32, on_sum: Callback) -> None:
        """Post a worker's vector for an address in its node's memory, the same address at all nodes.

        ``on_sum`` is called when the sum is in memory.
        """
        self._posted[worker].append(_Posted(vector.copy(), on_sum))
        self._board.tell(worker, ExchangePosted(address, vector.size))

    def finish_worker(self, worker: int) -> None:
        """Report that a worker will post no further exchange."""
        self._board.tell(worker, WorkerFinished())

    def handle(self, node: int, fact: Fact) -> None:
        """Handle a fact from a host of any rank, at rank 0."""
        self._controller.handle(node, fact)

    def obey(self, order: Order) -> None:
        """Carry out an order of the controller. The last order sets ``finished``."""
        match order:
            case BeginRound():
                self._board.at(order.at, partial(self._begin_round, order))
            case ReadSent(number):
                for _, node in self._members(number):
                    self._read_sent(node, number)
            case End():
                self.finished = True

    @property
    def figures(self) -> list[RoundFigures]:
        """Figures of all rounds, at rank 0."""
        return self._controller.figures

    def _members(self, number: int) -> list[tuple[Ring, int]]:
        """Return this rank's nodes in a round, each with its ring."""
        rings = self._plan.rounds[number].rings
        return [(ring, node) for ring in rings for node in ring.members if node in self._board.nodes]

    def _begin_round(self, order: BeginRound) -> None:
        if order.round == 0:
            zeros = np.zeros(order.count, np.float32)
            self._vectors = dict.fromkeys(self._board.nodes, zeros)
            self._vectors |= {node: posted[0].vector for node, posted in self._posted.items()}
        for ring, node in self._members(order.round):
            self._begin_job(order, ring, node)

    def _begin_job(self, order: BeginRound, ring: Ring, node: int) -> None:
        self._vector(order, node)[:] = self._vectors[node] if node in ring.contributors else 0
        member = RingMember(
            id=order.job % JOBS,
            macs=[worker_endpoint(member_node).mac for member_node in ring.members],
            rank=ring.members.index(node),
            timeout=self._settings.timeout,
            retries=self._settings.retries,
            bits=job_bits(
                self._settings.rounding_seed,
                self._settings.first_job + order.job,
                self._plan.rounds[order.round].rings.index(ring),
            ),
        )
        program = job_program(self._driver, member, order.address, order.count)
        self._board.run(node, program, partial(self._end_job, order, self._board.now, ring, node))

    def _end_job(self, order: BeginRound, begin: int, ring: Ring, node: int, reads: list[int]) -> None:
        self._check(order, ring, node, reads[1:])  # the first word is the changed status
        if node in ring.receivers:
            self._vectors[node] = self._vector(order, node).copy()
        self._board.tell(node, JobEnded(begin))
        if node in self._posted and self._plan.last_round(node) == order.round:
            self._posted[node].popleft().on_sum()

    def _check(self, order: BeginRound, ring: Ring, node: int, reads: list[int]) -> None:
        """Raise CheckFailed unless the job is complete."""
        status = self._driver.status_of(self._driver.wait().results(reads))
        name = f"round {order.round} ({self._plan.rounds[order.round].level}) of {self._name(order.exchange)}"
        if status.cause is Failure.TIMEOUT and self._is_cut(node):
            raise CheckFailed(f"node {node} has stopped answering: the other hosts wait for it after {name}")
        if status.cause is Failure.TIMEOUT:
            silent_node = ring.members[(ring.members.index(node) + 1) % len(ring.members)]
            raise CheckFailed(f"node {silent_node} has stopped answering: node {node} gives up {name}")
        if status.failed or status.completed != 1:
            raise CheckFailed(f"node {node} ended in {name} with {explain(status.cause)}")

    def _read_sent(self, node: int, number: int) -> None:
        """Read a node's sent bytes after the round, since a node with all sums may still have to send."""
        batch = self._driver.batch().read("sent").read("sent_beats")

        def note(reads: list[int]) -> None:
            frames, beats = batch.results(reads)
            assert isinstance(frames, int)
            assert isinstance(beats, int)
            sent = (frames + beats) * self._driver.config.width // 8  # each header is a beat
            self._board.tell(node, BytesSent(number, sent - self._sent[node]))
            self._sent[node] = sent

        self._board.run(node, HostProgram().extend(batch.operations), note)

    def _vector(self, order: BeginRound, node: int) -> Float32:
        part = self._board.memory(node)[order.address : order.address + 4 * order.count]
        return part.view("<f4")
