"""All hosts of a run, as live hosts, each of which runs its node's program."""

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
from fanin.sim.inceptionn.exchange import Part, Program, Spend, Work
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
    """Live hosts that run a program each. The run ends when all programs have ended and all is acknowledged."""

    def __init__(self, board: Board, plan: Plan):
        self.board, self.plan = board, plan
        self._began = board.now
        nodes = range(plan.topology.nodes)
        self.parts = [Part(plan.topology, node, plan.packets) for node in nodes]
        self.dead: set[int] = set()
        self.hosts = [
            Host(
                board,
                node,
                transport=plan.transport,
                costs=plan.costs,
                compresses=plan.codec is not None,
                dead=self.dead,
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
            self.board.at(self._began + round(seconds * _PS), partial(self._stop, node))
        for each in self.hosts:
            each.run(self.program(each.node), partial(self._ended, each.node))

    def _stop(self, node: int) -> None:
        self.board.cut(node)
        self.dead.add(node)

    def _ended(self, node: int, result: None) -> None:
        self._running.remove(node)

    @property
    def done(self) -> bool:
        """Whether all programs have ended, and everything sent is acknowledged."""
        return not self._running and all(each.idle for each in self.hosts)

    def may_skip(self) -> bool:
        """Return True: NICs count no time."""
        return True

    def waiting(self) -> str:
        """Return which node waits for what."""
        waits = [f"node {node} waits for {self.hosts[node].waits_for}" for node in sorted(self._running)]
        return "; ".join(waits) or "no node waits"

    @property
    def seconds(self) -> float:
        """Simulated time since the start."""
        return (self.board.now - self._began) / _PS

    @property
    def counters(self) -> list[Counters]:
        """Counters of each node's transport."""
        return [each.counters for each in self.hosts]


@dataclass
class Exchanged:
    """Result of one exchange: when each node had its sum, in seconds, and the hosts' work."""

    total: Float32
    ended: list[float]
    work: list[dict[Work, float]]
    transport: list[Counters]


class ExchangeHosts(Hosts):
    """One exchange of ``gradients``, one for each worker. An aggregator's weights are the sum itself.

    Raises CheckFailed unless all nodes get the golden sum.
    """

    def __init__(self, board: Board, *, plan: Plan, gradients: Sequence[Float32]):
        super().__init__(board, plan)
        self._gradients = gradients
        self._golden = exchange(plan.topology, gradients, Wire(plan.packets))
        self._ends: dict[int, float] = {}

    def program(self, node: int) -> Program[None]:
        """Add up the gradients, and distribute the sum."""
        part, topology = self.parts[node], self.plan.topology
        count = self._golden.size
        own = self._gradients[node] if node < topology.workers else None
        total = yield from part.add_up(own, count)
        if topology.aggregator is not None:
            if total is not None:
                yield Spend(Work.UPDATE, total.nbytes)
            total = yield from part.hand_down(total, count)
        if total is None or total.tobytes() != self._golden.tobytes():
            raise CheckFailed(f"node {node}: the sum differs from the golden model's")
        self._ends[node] = self.seconds

    @property
    def progress(self) -> int:
        """Number of nodes that have finished."""
        return len(self._ends)

    def result(self) -> Exchanged:
        """Return the run's result."""
        ended = [self._ends[node] for node in sorted(self._ends)]
        return Exchanged(self._golden, ended, [each.seconds for each in self.hosts], self.counters)


#: Function that makes the hosts of a run.
MakeHosts = Callable[[Any], Hosts]
