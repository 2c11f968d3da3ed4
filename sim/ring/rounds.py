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

from fanin.errors import CheckFailed
from fanin.hdl.ring.registers import Failure
from fanin.host.ring import RingDriver, RingMember
from fanin.job import worker_endpoint
from fanin.ring_groups import BARRIER, Plan, Ring
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
class _Posted:
    address: int
    vector: Float32
    then: Then


class Rounds:
    """Exchanges of a plan, one after the other; each begins when all workers have posted it.

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
        self._last = [plan.last_round(node) for node in range(plan.workers)]
        self._posted: list[deque[_Posted]] = [deque() for _ in range(plan.workers)]
        self._current: list[_Posted] = []  # the exchange under way, of each worker
        self._held: list[Float32] = []  # by each node
        self._sent = [0] * plan.nodes  # bytes of DATA frames until now
        self._round = self._unfinished = self._unread = 0
        self._exchanges = self._jobs = 0
        self.figures = [RoundFigures(each.level) for each in plan.rounds]

    def post(self, worker: int, address: int, vector: Float32, then: Then) -> None:
        """A worker's vector, to lie at an address of its node's memory, alike at all nodes.

        ``then`` is called when the sum is there.
        """
        self._posted[worker].append(_Posted(address, vector.copy(), then))
        self._begin_exchange()

    @property
    def idle(self) -> bool:
        """Nothing is under way, and the figures are whole."""
        return not self._current and not self._unread

    def _begin_exchange(self) -> None:
        """The next one, if there is none under way and every worker has posted it."""
        if self._current or not all(self._posted):
            return
        self._current = [queue.popleft() for queue in self._posted]
        self._held = [posted.vector for posted in self._current]
        nothing = np.zeros_like(self._held[0])
        self._held += [nothing] * (self._plan.nodes - self._plan.workers)
        self._round = 0
        self._synchronise()

    def _synchronise(self) -> None:
        """All nodes have arrived at the barrier."""
        self._board.at(self._board.now + round(self._settings.barrier * _PS), self._begin_round)

    def _begin_round(self) -> None:
        rings = self._plan.rounds[self._round].rings
        self._unfinished = sum(len(ring.members) for ring in rings)
        self._began = self._board.now
        for ring in rings:
            for node in ring.members:
                self._begin_job(ring, node)
        self._jobs += 1

    def _begin_job(self, ring: Ring, node: int) -> None:
        vector = self._vector(node)
        vector[:] = self._held[node] if node in ring.gives else 0
        member = RingMember(
            id=self._jobs % JOBS,
            macs=[worker_endpoint(each).mac for each in ring.members],
            rank=ring.members.index(node),
            timeout=self._settings.timeout,
            retries=self._settings.retries,
        )
        program = job_program(self._driver, member, self._current[0].address, vector.size)
        self._board.run(node, program, partial(self._end_job, ring, node))

    def _end_job(self, ring: Ring, node: int, reads: list[int]) -> None:
        self._check(ring, node, reads[1:])  # the first one is the status that has changed
        if node in ring.takes:
            self._held[node] = self._vector(node).copy()
        through = node < self._plan.workers and self._last[node] == self._round
        then = self._current[node].then if through else None
        self._unfinished -= 1
        if not self._unfinished:
            self._end_round()
        if then:
            then()

    def _check(self, ring: Ring, node: int, reads: list[int]) -> None:
        """That the job is complete."""
        status = self._driver.status_of(self._driver.wait().results(reads))
        where = f"round {self._round} ({self._plan.rounds[self._round].level}) of {self._name(self._exchanges)}"
        if status.cause is Failure.TIMEOUT and self._dead(node):
            raise CheckFailed(f"node {node} has stopped answering: the other hosts wait for it behind {where}")
        if status.cause is Failure.TIMEOUT:
            silent = ring.members[(ring.members.index(node) + 1) % len(ring.members)]
            raise CheckFailed(f"node {silent} has stopped answering: node {node} gives up {where}")
        if status.failed or status.completed != 1:
            raise CheckFailed(f"node {node} ended with {status.cause.name} in {where}")

    def _end_round(self) -> None:
        figures = self.figures[self._round]
        figures.seconds += (self._board.now - self._began) / _PS
        self._read_sent(figures)
        self._round += 1
        if self._round < len(self._plan.rounds):
            self._synchronise()
            return
        self._current = []
        self._exchanges += 1
        self._begin_exchange()

    def _read_sent(self, figures: RoundFigures) -> None:
        """What the nodes have sent. Only now: one that has all its sums may still have had frames to send."""
        batch = self._driver.batch().read("sent").read("sent_beats")
        program = HostProgram().extend(batch.operations)

        def note(node: int, reads: list[int]) -> None:
            frames, beats = batch.results(reads)
            assert isinstance(frames, int)
            assert isinstance(beats, int)
            sent = (frames + beats) * self._driver.config.width // 8  # a header is a beat
            figures.data_bytes += sent - self._sent[node]
            self._sent[node] = sent
            self._unread -= 1

        for ring in self._plan.rounds[self._round].rings:
            for node in ring.members:
                self._unread += 1
                self._board.run(node, program, partial(note, node))

    def _vector(self, node: int) -> Float32:
        posted = self._current[0]
        part = self._board.memory(node)[posted.address : posted.address + 4 * posted.vector.size]
        return part.view("<f4")
