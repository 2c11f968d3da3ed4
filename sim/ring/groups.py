# amaranth: UnusedElaboratable=no
"""Exchange in groups on simulated ring nodes: sums of the workers' vectors, and figures of the rounds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.ring.node import RingNode
from fanin.ring.driver import RingDriver
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig, check_binary32
from fanin.ring.groups import Plan
from fanin.sim.cosim.cluster import Cluster, Settings, check_identities
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, RunResult
from fanin.sim.cosim.simulator import Group
from fanin.sim.ring.rounds import JobSettings, Order, RoundFigures, Rounds

Float32 = npt.NDArray[np.float32]

_PS = 1e12


@dataclass
class GroupsRun:
    """Result of an exchange; ``seconds``: time until the last worker has its sum, with barriers."""

    sums: list[Float32]  # per worker
    seconds: float
    rounds: list[RoundFigures]
    counters: list[dict[str, int]]  # per node
    raw: RunResult = field(default_factory=RunResult, repr=False)

    def add(self, other: GroupsRun) -> None:
        """Append the results of the next rank's nodes; rank 0 has the rounds of all ranks."""
        self.sums += other.sums
        self.counters += other.counters
        self.seconds = max(self.seconds, other.seconds)


class GroupsCosim:
    """Ring nodes at a forwarding switch, built once; each ``exchange`` is a run of some or all of them.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(self, config: RingConfig, *, nodes: int, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        if nodes not in range(MIN_NODES, MAX_NODES + 1):
            raise InputError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
        self.config, self.nodes = config, nodes
        self.driver = RingDriver(config)
        check_binary32(config)
        self._cluster = Cluster(
            lambda: [Group(RingNode(config=config, queue=1), nodes)], clock_mhz=clock_mhz, quiet=quiet
        )

    def exchange(
        self,
        vectors: Sequence[Float32],
        plan: Plan,
        *,
        jobs: JobSettings | None = None,
        seed: int = 0,
        **settings: Unpack[Settings],
    ) -> GroupsRun:
        """Add up the workers' vectors, which have one length; all workers post at once.

        ``settings`` are those of ``Cluster.run``. Raises ValueError for vectors or a plan that do not fit, and
        SimulationFailed if the run or a node fails.
        """
        inputs, jobs = [np.ravel(vector).astype(np.float32) for vector in vectors], jobs or JobSettings()
        sizes = {vector.size for vector in inputs}
        if len(inputs) != plan.workers or len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"vectors must be {plan.workers} of one length, at least 1, "
                f"not {len(inputs)} of {sorted(sizes)}"
            )
        if plan.nodes > self.nodes:
            raise ValueError(f"plan must have at most {self.nodes} nodes, not {plan.nodes}")
        size = self.config.words(inputs[0].size) * self.config.width // 8
        identify = HostProgram().extend(self.driver.identify().operations)
        raw = self._cluster.run(
            memories=([np.zeros(size, np.uint8)] for _ in range(plan.nodes)),
            phases=[Phase("identify", [identify] * plan.nodes)],
            longest_wait=jobs.retries * (jobs.timeout + 2) + 4 * jobs.timeout,
            hosts=functools.partial(_Workers, config=self.config, plan=plan, jobs=jobs, vectors=inputs),
            independent_hosts=True,
            seed=seed,
            **settings,
        )
        check_identities(self.driver, raw.phases[0].reads)
        run: GroupsRun = raw.hosts
        run.raw = raw
        return run


class _Workers:
    """Live hosts of one exchange, for a rank's nodes."""

    def __init__(
        self, board: Board, *, config: RingConfig, plan: Plan, jobs: JobSettings, vectors: Sequence[Float32]
    ):
        self._board, self._vectors = board, vectors
        self._driver = RingDriver(config)
        self._rounds = Rounds(board, self._driver, plan, jobs, name=lambda number: "the exchange")
        self._start_ps = self._end_ps = board.now
        self._workers = [node for node in board.nodes if node < plan.workers]
        self._nodes = [node for node in board.nodes if node < plan.nodes]
        board.told, board.ordered = self._rounds.handle, self._obey
        self._sums: dict[int, Float32] = {}
        self._counters: dict[int, dict[str, int]] = {}

    def start(self) -> None:
        """Post the vectors of all workers."""
        for worker in self._workers:
            self._rounds.post(worker, 0, self._vectors[worker], functools.partial(self._complete, worker))

    def _complete(self, worker: int) -> None:
        content = self._board.memory(worker)[: self._vectors[worker].nbytes]
        self._sums[worker] = content.copy().view("<f4")
        self._end_ps = self._board.now
        self._rounds.finish_worker(worker)

    def _obey(self, order: Order) -> None:
        self._rounds.obey(order)
        if self._rounds.finished:
            counters = HostProgram().extend(self._driver.counters().operations)
            for node in self._nodes:
                self._board.run(node, counters, functools.partial(self._note, node))

    def _note(self, node: int, reads: list[int]) -> None:
        self._counters[node] = self._driver.counters_of(self._driver.counters().results(reads))

    @property
    def done(self) -> bool:
        """Whether all counters have been read."""
        return len(self._counters) == len(self._nodes)

    @property
    def progress(self) -> int:
        """Number of workers that have their sum."""
        return len(self._sums)

    def may_skip(self) -> bool:
        """Return True: hosts poll during a job, and nothing is in flight between jobs."""
        return True

    def waiting(self) -> str:
        """Return the workers that wait for their sum."""
        waiting = [worker for worker in self._workers if worker not in self._sums]
        return ", ".join(f"worker {worker} waits for its sum" for worker in waiting)

    def result(self) -> GroupsRun:
        """Return the result, without ``raw``."""
        return GroupsRun(
            [self._sums[worker] for worker in self._workers],
            (self._end_ps - self._start_ps) / _PS,
            self._rounds.figures,
            [self._counters[node] for node in self._nodes],
        )
