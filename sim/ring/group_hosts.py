"""Hosts of ring nodes that train in groups.

A layer's all-reduce is an *exchange*: rounds of rings within groups and between them. Hosts of all ranks report
facts (``Board.tell``) to rank 0, whose controller answers with orders to all ranks. Facts and orders are
defined in :mod:`fanin.sim.ring.rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fanin.ring.facts import RingConfig
from fanin.ring.golden.groups import exchanges
from fanin.ring.groups import Plan
from fanin.sim.cosim.live import Board
from fanin.sim.ring.hosts import Float32, GradientPosted, Host, Hosts, HostsResult
from fanin.sim.ring.rounds import Fact, JobSettings, Rounds
from fanin.sim.ring.schedule import Learners


class GroupHost(Host):
    """Host of a worker; an exchange begins once all workers have posted it and the previous one has ended."""

    hosts: GroupHosts

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._complete = 0  # complete exchanges
        # The program waits until more exchanges than this are complete. None: it does not wait.
        self._awaited_above: int | None = None

    def _post(self, layer: int, gradient: Float32) -> None:
        self.board.tell(self.node, GradientPosted(self._posted, gradient.copy()))
        self._posted += 1
        self.hosts.rounds.post(self.node, self.hosts.buffers.addresses[layer], gradient, self._end_exchange)
        self.advance()

    def _await_completions(self, more_than: int | None) -> None:
        # A request without ``more_than`` waits for nothing: every number of complete exchanges is above -1.
        self._awaited_above = -1 if more_than is None else more_than
        self._wake()

    def _read_counters(self) -> None:
        super()._read_counters()
        self.hosts.rounds.finish_worker(self.node)

    def _end_exchange(self) -> None:
        self._complete += 1
        self._wake()

    def _wake(self) -> None:
        if self._awaited_above is not None and self._complete > self._awaited_above:
            self._awaited_above = None
            self.advance(self._complete)


class GroupHosts(Hosts):
    """Live hosts of a rank's nodes in groups. Aggregators have no program of their own.

    - ``plan``: the groups, and the rings of each round.
    - ``stops``: nodes whose links are cut, with times in seconds.
    - ``jobs``: settings of all jobs.
    """

    host_type = GroupHost

    def __init__(
        self,
        board: Board,
        *,
        config: RingConfig,
        plan: Plan,
        learners: Learners,
        stops: Mapping[int, float],
        jobs: JobSettings,
    ):
        reduce = exchanges(config, plan, seed=jobs.rounding_seed, first_job=jobs.first_job)
        super().__init__(
            board, config=config, nodes=plan.workers, learners=learners, stops=stops, reduce=reduce
        )
        self.rounds = Rounds(board, self.driver, plan, jobs, name=self.name, is_cut=self.cut_nodes.__contains__)
        board.ordered = self.rounds.obey  # the board calls it at this rank with each order of rank 0

    def _handle(self, node: int, event: Any) -> None:
        if isinstance(event, Fact):
            self.rounds.handle(node, event)
        else:
            super()._handle(node, event)

    @property
    def done(self) -> bool:
        """Whether all hosts have finished their programs, and all exchanges have ended."""
        return super().done and self.rounds.finished

    def result(self) -> HostsResult:
        """Return the result with the figures of the rounds."""
        result = super().result()
        result.rounds = self.rounds.figures
        return result
