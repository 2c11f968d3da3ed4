"""Live hosts of INCEPTIONN's nodes, each of which runs its node's program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.exchange import Packets, Wire, exchange
from fanin.inceptionn.facts import Topology, TransportConfig
from fanin.sim.inceptionn import host
from fanin.sim.inceptionn.exchange import Participant, Program, Spend, Work
from fanin.sim.inceptionn.host import Host, HostCosts
from fanin.sim.inceptionn.transport import Counters

Float32 = npt.NDArray[np.float32]
_PS = 10**12  # picoseconds per second


class Board(host.Board, Protocol):
    """The part of :class:`fanin.sim.cosim.live.Board` that the hosts use."""

    def cut(self, node: int) -> None:
        """Cut a node's link."""


@dataclass(frozen=True)
class Plan:
    """Plan of an exchange: topology, codec, transport, and costs of hosts; picklable.

    ``stops``: nodes whose links are cut, with times in seconds after the start.
    """

    topology: Topology
    codec: Inceptionn | None = None
    transport: TransportConfig = field(default_factory=TransportConfig)
    costs: HostCosts = field(default_factory=HostCosts)
    stops: Mapping[int, float] = field(default_factory=dict)

    @property
    def packets(self) -> Packets:
        """Conversion of gradients to packets."""
        return Packets(self.codec, self.transport.mss)


class Hosts(ABC):
    """Live hosts that run a program each, until all programs have ended and all bytes are acknowledged."""

    def __init__(self, board: Board, plan: Plan):
        self.board, self.plan = board, plan
        self._start_ps = board.now
        nodes = range(plan.topology.nodes)
        self.participants = [Participant(plan.topology, node, plan.packets) for node in nodes]
        self.cut_nodes: set[int] = set()
        self.hosts = [
            Host(
                board,
                node,
                transport=plan.transport,
                costs=plan.costs,
                compresses=plan.codec is not None,
                cut_nodes=self.cut_nodes,
            )
            for node in nodes
        ]
        self._running = set(nodes)

    @abstractmethod
    def program(self, node: int) -> Program[None]:
        """Return a node's program."""

    @property
    @abstractmethod
    def progress(self) -> int:
        """Progress of the run, in the hosts' own unit."""

    @abstractmethod
    def result(self) -> Any:
        """Return the run's result; called once done."""

    def start(self) -> None:
        """Start all hosts, and schedule the cuts."""
        for node, seconds in self.plan.stops.items():
            self.board.at(self._start_ps + round(seconds * _PS), partial(self._stop, node))
        for node_host in self.hosts:
            node_host.run(self.program(node_host.node), partial(self._finish, node_host.node))

    def _stop(self, node: int) -> None:
        self.board.cut(node)
        self.cut_nodes.add(node)

    def _finish(self, node: int, result: None) -> None:
        self._running.remove(node)

    @property
    def done(self) -> bool:
        """Whether all programs have ended, and all bytes are acknowledged."""
        return not self._running and all(node_host.idle for node_host in self.hosts)

    def may_skip(self) -> bool:
        """Return True: NICs count no time."""
        return True

    def waiting(self) -> str:
        """Return which node waits for what."""
        lines = [f"node {node} waits for {self.hosts[node].waits_for}" for node in sorted(self._running)]
        return "; ".join(lines) or "no node waits"

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""
        return (self.board.now - self._start_ps) / _PS

    @property
    def counters(self) -> list[Counters]:
        """Counters of each node's transport."""
        return [node_host.counters for node_host in self.hosts]


@dataclass
class ExchangeResult:
    """Result of one exchange.

    - ``total``: golden sum.
    - ``sum_times``: per node, seconds from the start until it had the sum or weights.
    - ``work``: per node, seconds of each kind of work.
    - ``transport``: per node, counters of its transport.
    """

    total: Float32
    sum_times: list[float]
    work: list[dict[Work, float]]
    transport: list[Counters]


class ExchangeHosts(Hosts):
    """Live hosts of one exchange of ``gradients``, one per worker. An aggregator's weights are the sum itself.

    Raises CheckFailed unless all nodes get the golden sum.
    """

    def __init__(self, board: Board, *, plan: Plan, gradients: Sequence[Float32]):
        super().__init__(board, plan)
        self._gradients = gradients
        self._golden = exchange(plan.topology, gradients, Wire(plan.packets))
        self._sum_times: dict[int, float] = {}

    def program(self, node: int) -> Program[None]:
        """Add up the gradients, and distribute the sum."""
        participant, topology = self.participants[node], self.plan.topology
        count = self._golden.size
        gradient = self._gradients[node] if node < topology.workers else None
        total = yield from participant.reduce(gradient, count)
        if topology.aggregator is not None:
            if total is not None:
                yield Spend(Work.UPDATE, total.nbytes)
            total = yield from participant.distribute(total, count)
        if total is None or total.tobytes() != self._golden.tobytes():
            raise CheckFailed(f"node {node}: the sum differs from the golden model's")
        self._sum_times[node] = self.seconds

    @property
    def progress(self) -> int:
        """Number of nodes that have finished."""
        return len(self._sum_times)

    def result(self) -> ExchangeResult:
        """Return the run's result."""
        sum_times = [self._sum_times[node] for node in sorted(self._sum_times)]
        return ExchangeResult(
            self._golden, sum_times, [node_host.seconds for node_host in self.hosts], self.counters
        )


#: Function that makes the hosts of a run.
MakeHosts = Callable[[Any], Hosts]
