"""Exchanges in groups at simulated ring nodes: each node's host has it do one job after the other.

How hosts keep jobs apart: docs/systems/ring-groups.md, "Jobs".
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
from fanin.ring.groups import BARRIER, Plan, Ring
from fanin.sim.cosim.live import Board, Then
from fanin.sim.cosim.program import HostProgram
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING

Float32 = npt.NDArray[np.float32]

TIMEOUT = 4000  # cycles: some hops there and back
RETRIES = 50  # a silent node ends the run after 200,000 cycles
JOBS = 1 << field_bits(RING, "job")
_PS = 1e12


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Of every job: ``barrier`` in seconds before it, ``timeout`` in cycles, and ``retries``.

    Raises ValueError for a barrier below 0.
    """

    barrier: float = BARRIER
    timeout: int = TIMEOUT
    retries: int = RETRIES

    def __post_init__(self) -> None:
        if not self.barrier >= 0:
            raise ValueError(f"barrier must be at least 0 seconds, not {self.barrier!r}")


@dataclass
class RoundFigures:
    """Of one round, all exchanges together.

    ``seconds``: from the end of the barrier until all hosts know that their jobs are complete; ``data_bytes``:
    of DATA frames, without FCS, none of them counted twice.
    """

    level: str
    seconds: float = 0.0
    data_bytes: int = 0


def job_program(driver: RingDriver, member: RingMember, address: int, count: int) -> HostProgram:
    """One node's part in a job, from its settings until it has ended; its reads are those of ``driver.wait()``,
    behind one more of the status.
    """
    program = HostProgram()
    for batch in driver.configure(member), driver.start():
        program.extend(batch.operations)
    program.poll_field(driver.registers, "status", "busy", 0)
    program.extend(driver.post(address, count).operations)
    program.await_change(driver.registers, "status", completed_low=0, failed=0, refused_any=0)
    return program.extend(driver.wait().operations)


@dataclass(frozen=True)
class Begin:
    """All hosts begin a round of an exchange at a time in ps: its job, with the vector's place at all nodes."""

    exchange: int
    round: int
    job: int
    address: int
    count: int
    at: int


@dataclass(frozen=True)
class ReadSent:
    """The hosts of a round, which has ended, read what their nodes have sent."""

    round: int


@dataclass(frozen=True)
class End:
    """There will be no exchange any more."""


@dataclass(frozen=True)
class Ready:
    """A worker's host has posted its next exchange."""

    address: int
    count: int


@dataclass(frozen=True)
class Through:
    """A worker's host will post nothing any more."""


@dataclass(frozen=True)
class JobEnded:
    """A node's job of the round is complete; all of the round ``began`` at that time in ps."""

    began: int


@dataclass(frozen=True)
class HaveSent:
    """Bytes of DATA frames of a node in a round."""

    round: int
    data_bytes: int


Order = Begin | ReadSent | End
Fact = Ready | Through | JobEnded | HaveSent


class Controller:
    """Decides when rounds begin, at rank 0, by the facts that hosts tell; has the figures of all rounds.

    An exchange begins when all workers have posted it, and the one before has ended; its rounds follow one
    another, ``barrier`` seconds apart.
    """

    def __init__(self, board: Board, plan: Plan, barrier: float):
        self._board, self._plan, self._barrier = board, plan, round(barrier * _PS)
        self._ready: list[deque[Ready]] = [deque() for _ in range(plan.workers)]
        self._current: Ready | None = None  # the exchange under way
        self._round = self._unfinished = self._unread = self._through = 0
        self._exchanges = self._jobs = 0
        self.figures = [RoundFigures(each.level) for each in plan.rounds]

    def told(self, node: int, fact: Fact) -> None:
        """What a host has to say."""
        match fact:
            case Ready():
                self._ready[node].append(fact)
                self._begin_exchange()
            case Through():
                self._through += 1
            case JobEnded(began):
                self._unfinished -= 1
                if not self._unfinished:
                    self._end_round(began)
            case HaveSent(number, data_bytes):
                self.figures[number].data_bytes += data_bytes
                self._unread -= 1
        if self._through == self._plan.workers and not self._current and not self._unread:
            self._board.order(End())

    def _begin_exchange(self) -> None:
        """The next one, if there is none under way and every worker has posted it."""
        if self._current or not all(self._ready):
            return
        self._current, *_ = [queue.popleft() for queue in self._ready]
        self._round = 0
        self._begin_round()

    def _begin_round(self) -> None:
        """All nodes have arrived at the barrier."""
        assert self._current is not None
        self._unfinished = len(self._members)
        at = self._board.told_at + self._barrier
        where = self._current.address, self._current.count
        self._board.order(Begin(self._exchanges, self._round, self._jobs, *where, at))
        self._jobs += 1

    def _end_round(self, began: int) -> None:
        self.figures[self._round].seconds += (self._board.told_at - began) / _PS
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
    vector: Float32
    then: Then


class Rounds:
    """A rank's part in exchanges of a plan; the controller, for whom ``told`` and ``obey`` are, begins them.

    ``name`` says what an exchange is, by its number, where it fails; ``dead`` whether a node's link is cut.
    Raises CheckFailed, in callbacks, when a job fails.
    """

    def __init__(
        self,
        board: Board,
        driver: RingDriver,
        plan: Plan,
        settings: JobSettings,
        *,
        name: Callable[[int], str],
        dead: Callable[[int], bool] = lambda node: False,
    ):
        self._board, self._driver, self._plan, self._settings = board, driver, plan, settings
        self._name, self._dead = name, dead
        self._posted: dict[int, deque[_Posted]] = {node: deque() for node in board.nodes if node < plan.workers}
        self._held: dict[int, Float32] = {}  # by each node, in the exchange under way
        self._sent = dict.fromkeys(board.nodes, 0)  # bytes of DATA frames until now
        self._controller = Controller(board, plan, settings.barrier)
        self.ended = False

    def post(self, worker: int, address: int, vector: Float32, then: Then) -> None:
        """A worker's vector, to lie at an address of its node's memory, alike at all nodes.

        ``then`` is called when the sum is there.
        """
        self._posted[worker].append(_Posted(vector.copy(), then))
        self._board.tell(worker, Ready(address, vector.size))

    def through(self, worker: int) -> None:
        """A worker will post nothing any more."""
        self._board.tell(worker, Through())

    def told(self, node: int, fact: Fact) -> None:
        """At rank 0, what a host of any rank has told."""
        self._controller.told(node, fact)

    def obey(self, order: Order) -> None:
        """What the controller has ordered. With the last one, ``ended``."""
        match order:
            case Begin():
                self._board.at(order.at, partial(self._begin_round, order))
            case ReadSent(number):
                for _, node in self._members(number):
                    self._read_sent(node, number)
            case End():
                self.ended = True

    @property
    def figures(self) -> list[RoundFigures]:
        """Of all rounds, at rank 0."""
        return self._controller.figures

    def _members(self, number: int) -> list[tuple[Ring, int]]:
        """This rank's nodes in a round, each with its ring."""
        rings = self._plan.rounds[number].rings
        return [(ring, node) for ring in rings for node in ring.members if node in self._board.nodes]

    def _begin_round(self, order: Begin) -> None:
        if order.round == 0:
            nothing = np.zeros(order.count, np.float32)
            self._held = dict.fromkeys(self._board.nodes, nothing)
            self._held |= {node: posted[0].vector for node, posted in self._posted.items()}
        for ring, node in self._members(order.round):
            self._begin_job(order, ring, node)

    def _begin_job(self, order: Begin, ring: Ring, node: int) -> None:
        self._vector(order, node)[:] = self._held[node] if node in ring.gives else 0
        member = RingMember(
            id=order.job % JOBS,
            macs=[worker_endpoint(each).mac for each in ring.members],
            rank=ring.members.index(node),
            timeout=self._settings.timeout,
            retries=self._settings.retries,
        )
        program = job_program(self._driver, member, order.address, order.count)
        self._board.run(node, program, partial(self._end_job, order, self._board.now, ring, node))

    def _end_job(self, order: Begin, began: int, ring: Ring, node: int, reads: list[int]) -> None:
        self._check(order, ring, node, reads[1:])  # the first one is the status that has changed
        if node in ring.takes:
            self._held[node] = self._vector(order, node).copy()
        self._board.tell(node, JobEnded(began))
        if node in self._posted and self._plan.last_round(node) == order.round:
            self._posted[node].popleft().then()

    def _check(self, order: Begin, ring: Ring, node: int, reads: list[int]) -> None:
        """That the job is complete."""
        status = self._driver.status_of(self._driver.wait().results(reads))
        where = f"round {order.round} ({self._plan.rounds[order.round].level}) of {self._name(order.exchange)}"
        if status.cause is Failure.TIMEOUT and self._dead(node):
            raise CheckFailed(f"node {node} has stopped answering: the other hosts wait for it behind {where}")
        if status.cause is Failure.TIMEOUT:
            silent = ring.members[(ring.members.index(node) + 1) % len(ring.members)]
            raise CheckFailed(f"node {silent} has stopped answering: node {node} gives up {where}")
        if status.failed or status.completed != 1:
            raise CheckFailed(f"node {node} ended in {where} with {explain(status.cause)}")

    def _read_sent(self, node: int, number: int) -> None:
        """What a node has sent. Only now: one that has all its sums may still have had frames to send."""
        batch = self._driver.batch().read("sent").read("sent_beats")

        def note(reads: list[int]) -> None:
            frames, beats = batch.results(reads)
            assert isinstance(frames, int)
            assert isinstance(beats, int)
            sent = (frames + beats) * self._driver.config.width // 8  # a header is a beat
            self._board.tell(node, HaveSent(number, sent - self._sent[node]))
            self._sent[node] = sent

        self._board.run(node, HostProgram().extend(batch.operations), note)

    def _vector(self, order: Begin, node: int) -> Float32:
        part = self._board.memory(node)[order.address : order.address + 4 * order.count]
        return part.view("<f4")
