"""Hosts of simulated ring nodes: each carries out its schedule, and checks every sum that its node stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.hdl.ring.registers import COMPLETED_LOW_BITS, Failure
from fanin.host.causes import explain
from fanin.host.driver import Operation
from fanin.ring.driver import RingDriver
from fanin.ring.facts import RingConfig, check_binary32
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.ring.rounds import RoundFigures
from fanin.sim.ring.schedule import (
    AwaitCompletions,
    Compute,
    Fetch,
    Learners,
    Post,
    Program,
    Request,
    Times,
    Worker,
)
from fanin.sim.ring.sums import Sums

Float32 = npt.NDArray[np.float32]

_PS = 1e12


@dataclass(frozen=True)
class Buffers:
    """Layout of the layers' vectors in a node's memory, aligned to words."""

    config: RingConfig
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        check_binary32(self.config)

    @property
    def addresses(self) -> list[int]:
        """First byte of each vector."""
        words = np.cumsum([0, *(self.config.words(count) for count in self.counts[:-1])])
        return (words * self.config.width // 8).tolist()

    @property
    def size(self) -> int:
        """Bytes of all vectors."""
        return sum(self.config.words(count) for count in self.counts) * self.config.width // 8


@dataclass(frozen=True)
class GradientPosted:
    """Event: a host has posted a gradient; ``descriptor``: its number in the run."""

    descriptor: int
    gradient: Float32


@dataclass(frozen=True)
class SumFetched:
    """Event: a host has read the sum of a descriptor (``total``) from memory."""

    descriptor: int
    layer: int
    total: Float32


class Host:
    """Host of one node, which carries out its program's requests at the node."""

    def __init__(self, hosts: Hosts, node: int, worker: Worker, steps: int):
        self.hosts, self.board, self.node, self.times = hosts, hosts.board, node, worker.times
        self.counters: dict[str, int] | None = None
        self._program: Program = worker.run(steps)
        self._posted = self._fetched = 0

    def advance(self, answer: Any = None) -> None:
        """Continue the program until it waits."""
        try:
            request: Request = self._program.send(answer)
        except StopIteration:
            self._read_counters()
            return
        match request:
            case Compute(seconds):
                self.board.at(self.board.now + round(seconds * _PS), self.advance)
            case Post(layer, gradient):
                self._post(layer, gradient)
            case AwaitCompletions(more_than):
                self._await_completions(more_than)
            case Fetch(layer):
                self.advance(self._fetch(layer))

    def _post(self, layer: int, gradient: Float32) -> None:
        self.board.tell(self.node, GradientPosted(self._posted, gradient.copy()))
        self._posted += 1
        self._vector(layer)[:] = gradient
        count, address = gradient.size, self.hosts.buffers.addresses[layer]
        self._run(self.hosts.driver.post(address, count).operations, lambda reads: self.advance())

    def _await_completions(self, more_than: int | None) -> None:
        """Read the status, after a wait for ``more_than`` descriptors or a failure of the node."""
        driver, program = self.hosts.driver, HostProgram()
        if more_than is not None:
            low = more_than % (1 << COMPLETED_LOW_BITS)
            program.await_change(driver.registers, "status", completed_low=low, failed=0, refused_any=0)
        program.extend(driver.wait().operations)
        first = int(more_than is not None)  # skip the word that ``await_change`` has read
        self.board.run(self.node, program, lambda reads: self._answer(reads[first:]))

    def _answer(self, reads: list[int]) -> None:
        driver = self.hosts.driver
        status = driver.status_of(driver.wait().results(reads))
        if status.failed:
            raise CheckFailed(self._failure(status.cause))
        if status.refused:
            raise CheckFailed(f"node {self.node} has refused {status.refused} descriptors")
        self.advance(status.completed)

    def _failure(self, cause: Failure) -> str:
        name = self.hosts.name(self._fetched)
        if cause is Failure.TIMEOUT and self.node in self.hosts.cut_nodes:
            return f"node {self.node} has stopped answering: its link is cut in {name}"
        if cause is Failure.TIMEOUT:
            silent_node = (self.node + 1) % self.hosts.nodes
            return f"node {silent_node} has stopped answering: node {self.node} gives up {name}"
        return f"node {self.node} ended in {name} with {explain(cause)}"

    def _fetch(self, layer: int) -> Float32:
        """Return the sum in memory, and send it to rank 0 for comparison with the golden model."""
        total = self._vector(layer).copy()
        self.board.tell(self.node, SumFetched(self._fetched, layer, total))
        self._fetched += 1
        return total

    def _vector(self, layer: int) -> Float32:
        buffers = self.hosts.buffers
        begin = buffers.addresses[layer]
        part = self.board.memory(self.node)[begin : begin + 4 * buffers.counts[layer]]
        return part.view("<f4")

    def _read_counters(self) -> None:
        batch = self.hosts.driver.counters()

        def note(reads: list[int]) -> None:
            self.counters = self.hosts.driver.counters_of(batch.results(reads))

        self._run(batch.operations, note)

    def _run(self, operations: Iterable[Operation], callback: Callable[[list[int]], None]) -> None:
        self.board.run(self.node, HostProgram().extend(operations), callback)


@dataclass
class HostsResult:
    """Result of all workers: learning, times, final counters, and rounds of groups.

    - ``learning_result``: result of the learners.
    - ``start``: simulated time, in seconds, at which all other times are 0.
    """

    learning_result: Any
    times: list[Times]
    counters: list[dict[str, int]]
    rounds: list[RoundFigures] = field(default_factory=list)
    start: float = 0.0

    def add(self, other: HostsResult) -> None:
        """Append the workers of the next rank; rank 0 has the learned epochs of all ranks."""
        self.times += other.times
        self.counters += other.counters


class Hosts:
    """Live hosts of a rank's nodes, made in the simulator's process.

    Rank 0 compares all nodes: each sum with the golden model's, and each model with the others.

    - ``learners``: models of all nodes.
    - ``stops``: nodes whose links are cut, with times in seconds.
    - ``bits``: random bits of the nodes.
    - ``reduce``: golden model of the all-reduces, called in their order; default: one ring of all nodes.
    """

    host_type: type[Host] = Host

    def __init__(
        self,
        board: Board,
        *,
        config: RingConfig,
        nodes: int,
        learners: Learners,
        stops: Mapping[int, float],
        bits: RandomBits | None = None,
        reduce: Callable[[Sequence[Float32]], Float32] | None = None,
    ):
        self.board, self.nodes, self.first_step = board, nodes, learners.first_step
        self.driver, self.buffers = RingDriver(config), Buffers(config, tuple(learners.counts))
        bits = replace(bits or RandomBits())
        self.sums = Sums(reduce or partial(all_reduce, config=config, bits=bits), nodes)
        self.cut_nodes: set[int] = set()
        self._learners, self._stops, self._start_ps = learners, stops, board.now
        self._handling = False
        workers = learners.workers(lambda: self.seconds, board.tell)
        self._hosts = [
            self.host_type(self, node, worker, learners.steps)
            for node, worker in enumerate(workers)
            if node in board.nodes
        ]
        board.told = self._handle

    @property
    def seconds(self) -> float:
        """Simulated time since the start; inside ``_handle``, the time of the event."""
        return ((self.board.told_at if self._handling else self.board.now) - self._start_ps) / _PS

    def _handle(self, node: int, event: Any) -> None:
        """Handle an event of a host of any rank, at rank 0. Raises CheckFailed."""
        match event:
            case GradientPosted(descriptor, gradient):
                self.sums.post(descriptor, node, gradient)
            case SumFetched():
                self._check(node, event)
            case _:
                self._handling = True
                self._learners.handle(node, event)
                self._handling = False

    def _check(self, node: int, fetched: SumFetched) -> None:
        total, expected = fetched.total, self.sums.take(fetched.descriptor)
        if total.tobytes() != expected.tobytes():
            wrong = int((total.view(np.uint32) != expected.view(np.uint32)).sum())
            step = self.first_step + fetched.descriptor // len(self.buffers.counts)
            place = f"node {node}, layer {fetched.layer}, step {step}"
            raise CheckFailed(f"{place}: {wrong} of {total.size} values of the sum are not the golden model's")

    def start(self) -> None:
        """Start all hosts at once, and schedule the cuts of links."""
        for node, seconds in self._stops.items():
            if node not in self.board.nodes:
                continue
            self.board.at(self._start_ps + round(seconds * _PS), partial(self._stop, node))
        for host in self._hosts:
            host.advance()

    def _stop(self, node: int) -> None:
        self.board.cut(node)
        self.cut_nodes.add(node)

    def name(self, descriptor: int) -> str:
        """Return the name of a descriptor's all-reduce."""
        layers = len(self.buffers.counts)
        step, index = divmod(descriptor, layers)
        return f"the all-reduce of layer {layers - 1 - index}, step {self.first_step + step}"

    @property
    def done(self) -> bool:
        """Whether all hosts have finished their programs."""
        return all(host.counters is not None for host in self._hosts)

    @property
    def progress(self) -> int:
        """Number of steps that all nodes have made."""
        return min((len(host.times.steps) for host in self._hosts), default=self._learners.steps)

    def may_skip(self) -> bool:
        """Return True: ``quiet_cycles`` above the timeout ensures that no retransmission is pending."""
        return True

    def waiting(self) -> str:
        """Return the progress of each host."""
        return ", ".join(f"node {host.node} has made {len(host.times.steps)} steps" for host in self._hosts)

    def result(self) -> HostsResult:
        """Return the run's result."""
        counters = [host.counters or {} for host in self._hosts]
        times = [host.times for host in self._hosts]
        return HostsResult(self._learners.result(), times, counters, start=self._start_ps / _PS)
