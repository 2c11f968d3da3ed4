"""Hosts of ring nodes that train in groups: a layer's all-reduce is an exchange between groups."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fanin.ring.facts import RingConfig
from fanin.ring.golden.groups import exchange
from fanin.ring.groups import Plan
from fanin.sim.cosim.live import Board
from fanin.sim.ring.hosts import Float32, GradientPosted, Host, Hosts, HostsResult
from fanin.sim.ring.rounds import Fact, JobSettings, Rounds
from fanin.sim.ring.schedule import Learners


class GroupHost(Host):
    """Host of a worker; an exchange begins after the previous one, when all workers have posted it."""

    hosts: GroupHosts

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._complete = 0  # complete exchanges
        self._more_than: int | None = None  # the program waits until more exchanges than this are complete

    def _post(self, layer: int, gradient: Float32) -> None:
        self.board.tell(self.node, GradientPosted(self._posted, gradient.copy()))
        self._posted += 1
        self.hosts.rounds.post(self.node, self.hosts.buffers.addresses[layer], gradient, self._end_exchange)
        self.advance()

    def _await_completions(self, more_than: int | None) -> None:
        self._more_than = -1 if more_than is None else more_than
        self._wake()

    def _read_counters(self) -> None:
        super()._read_counters()
        self.hosts.rounds.finish_worker(self.node)

    def _end_exchange(self) -> None:
        self._complete += 1
        self._wake()

    def _wake(self) -> None:
        if self._more_than is not None and self._complete > self._more_than:
            self._more_than = None
            self.advance(self._complete)


class GroupHosts(Hosts):
    """Live hosts of a rank's nodes in groups. Aggregators have no program of their own."""

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
        reduce = partial(exchange, config=config, plan=plan)
        super().__init__(
            board, config=config, nodes=plan.workers, learners=learners, stops=stops, reduce=reduce
        )
        self.rounds = Rounds(board, self.driver, plan, jobs, name=self.name, is_cut=self.cut_nodes.__contains__)
        board.ordered = self.rounds.obey

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
