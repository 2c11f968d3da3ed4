# amaranth: UnusedElaboratable=no
"""One-sided writes between simulated nodes: memories are filled, writes posted, memories read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Unpack

import numpy as np

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.rdma.node import ARRIVALS, COMPLETIONS, RdmaNode
from fanin.host.causes import explain
from fanin.job import worker_endpoint
from fanin.rdma.driver import Arrival, Completion, RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, RdmaConfig, Refusal, Region, Write
from fanin.rdma.nic_driver import NicDriver
from fanin.sim.cosim.cluster import Cluster, Reads, Settings, check_identities
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, RunResult
from fanin.sim.cosim.simulator import Group, SimulationFailed
from fanin.sim.switch.base import Switch
from fanin.wire.ethernet import Endpoint

MAX_NODES = 64
SOURCE_PORT = 0xC000  # plus a queue pair's index: source port of its packets

#: Causes of refusals that host programs check, by register and field.
REFUSALS: Mapping[str, Mapping[str, type[IntEnum]]] = {
    "refusals": {"connect_refusal": Refusal, "region_refusal": Refusal}
}

End = tuple[int, int]  # a node, and the index of one of its queue pairs


@dataclass(frozen=True)
class Pair:
    """The two ends of a connection, and each end's view of it."""

    ends: tuple[End, End]
    connections: tuple[Connection, Connection]

    @classmethod
    def of(cls, a: End, b: End, *, psns: tuple[int, int] = (0, 0), **limits: int) -> Pair:
        """Connect two ends, whose first packets have ``psns``; ``limits`` are MTU, window and retries."""
        first = Connection(FIRST_QUEUE_PAIR + b[1], *psns, **limits)
        return cls((a, b), (first, Connection(FIRST_QUEUE_PAIR + a[1], *reversed(psns), **limits)))


def configure_node(
    driver: NicDriver, node: int, pairs: Sequence[Pair], regions: Sequence[Region], *, timeout: int
) -> HostProgram:
    """Return a program that sets up a node: its regions, and its ends of ``pairs``.

    The program first reads ``driver.identify()``; ``timeout`` is in cycles.
    """
    program = HostProgram().extend(driver.identify().operations)
    program.extend(driver.configure(worker_endpoint(node), timeout=timeout).operations)
    program.extend(driver.set_regions(regions).operations)
    for pair in pairs:
        connect(driver, program, node, pair)
    return program


def connect(driver: NicDriver, program: HostProgram, node: int, pair: Pair) -> None:
    """Add the connection of a node's ends of a pair to a program."""
    for end, other, connection in zip(pair.ends, reversed(pair.ends), pair.connections, strict=True):
        if end[0] == node:
            peer_node = worker_endpoint(other[0])
            peer = Endpoint(peer_node.mac, peer_node.ip, SOURCE_PORT + end[1])
            program.extend(driver.connect(end[1], connection, peer).operations)
            program.poll_field(driver.registers, "status", "connecting", 0)
            program.check_field(driver.registers, "refusals", "connect_refusal", 0)


def disconnect(driver: NicDriver, program: HostProgram, index: int) -> None:
    """Add the end of the queue pair at ``index``, after which it accesses no memory."""
    program.extend(driver.disconnect(index).operations)
    program.poll_field(driver.registers, "status", "connecting", 0)
    program.check_field(driver.registers, "refusals", "connect_refusal", 0)


def post(driver: RdmaDriver, program: HostProgram, index: int, write: Write) -> None:
    """Add a post of a write at queue pair ``index``, after a wait for room."""
    program.poll_field(driver.registers, "status", "full", 0)
    program.extend(driver.post(index, write).operations)
    program.poll_field(driver.registers, "status", "posting", 0)


def take_completion(driver: RdmaDriver, program: HostProgram) -> None:
    """Add a wait for a completion and its read."""
    program.poll_field(driver.registers, "completion", "completed", 1)
    program.extend(driver.take_completion().operations)


def name_refusal(
    failure: SimulationFailed, driver: NicDriver, fields: Mapping[str, Mapping[str, type[IntEnum]]] = REFUSALS
) -> SimulationFailed:
    """Return the failure with its cause, if a node of ``driver`` has refused a command.

    ``fields``: causes of the refusals that host programs check, by register and field.
    """
    check = failure.result.failed_check if failure.result else None
    if failure.result is None or check is None:
        return failure
    for register, causes in fields.items():
        if check.address != driver.registers.offset(register):
            continue
        values = driver.registers[register].unpack(check.value)
        for name, cause in causes.items():
            if values[name]:
                text = f"node {check.node} refused a command by cycle {failure.result.cycles}"
                return SimulationFailed(f"{text}: {explain(cause(values[name]))}", failure.result)
    return failure


@dataclass
class RdmaRun:
    """Result of a run, per node."""

    memories: list[bytearray] = field(default_factory=list)
    completions: list[list[Completion]] = field(default_factory=list)
    arrivals: list[list[Arrival]] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)

    @property
    def cycles(self) -> int:
        """Cycles from the first post to the last completion."""
        (writes,) = (phase for phase in self.raw.phases if phase.name == "write")
        return writes.end - writes.start


class RdmaCosim:
    """Nodes of ``config`` at a forwarding switch, built once; each ``run`` starts from reset.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self, config: RdmaConfig, *, nodes: int = 2, clock_mhz: float = CLOCK_MHZ, quiet: bool = False
    ):
        if nodes not in range(1, MAX_NODES + 1):
            raise InputError(f"nodes must be 1 to {MAX_NODES}, not {nodes}")
        self.config = config
        self.nodes = nodes
        self.driver = RdmaDriver(config)
        self._cluster = Cluster(
            lambda: [Group(RdmaNode(config=config), nodes)], clock_mhz=clock_mhz, quiet=quiet
        )
        self.period_ps = self._cluster.period_ps

    def run(
        self,
        *,
        memories: Sequence[bytes],
        pairs: Sequence[Pair],
        regions: Sequence[Sequence[Region]],
        writes: Sequence[Sequence[tuple[int, Write]]],
        arrivals: Sequence[int] | None = None,
        timeout: int = 5_000,
        seed: int = 0,
        switch: Callable[[], Switch] | None = None,
        **settings: Unpack[Settings],
    ) -> RdmaRun:
        """Post the ``writes`` of each node in order, each with its queue pair's index, and wait for all.

        - ``memories``: initial memory of each node.
        - ``regions``: regions of each node.
        - ``arrivals``: messages with immediate data that each host waits for.
        - ``timeout``: cycles until a packet is sent again.
        - ``switch``: replaces the forwarding switch.
        - ``settings``: those of ``Cluster.run``.

        Raises SimulationFailed if the run fails.
        """
        arrivals = arrivals or [0] * self.nodes
        if max(arrivals) > ARRIVALS:
            raise ValueError(
                f"arrivals must be at most {ARRIVALS} a node, which takes them last, not {arrivals}"
            )
        configure = [
            configure_node(self.driver, node, pairs, own, timeout=timeout) for node, own in enumerate(regions)
        ]
        try:
            raw = self._cluster.run(
                memories=([np.frombuffer(memory, np.uint8)] for memory in memories),
                phases=[
                    Phase("configure", configure),
                    Phase("write", [self._write(own) for own in writes]),
                    Phase("end", [self._end(count) for count in arrivals]),
                ],
                longest_wait=20 * timeout,
                seed=seed,
                switch=switch,
                **settings,
            )
        except SimulationFailed as failure:
            raise name_refusal(failure, self.driver) from None
        return self._collect(raw, arrivals)

    def _write(self, writes: Sequence[tuple[int, Write]]) -> HostProgram:
        """Return a program that posts while there is room, and takes a completion per post."""
        program = HostProgram()
        taken = 0
        for number, (index, write) in enumerate(writes):
            if number - taken == COMPLETIONS:
                take_completion(self.driver, program)
                taken += 1
            post(self.driver, program, index, write)
        for _ in range(len(writes) - taken):
            take_completion(self.driver, program)
        return program

    def _end(self, arrivals: int) -> HostProgram:
        driver, program = self.driver, HostProgram()
        for _ in range(arrivals):
            program.poll_field(driver.registers, "arrival", "arrived", 1)
            program.extend(driver.take_arrival().operations)
        program.check(driver.registers.offset("refused_posts"), 0)
        return program.extend(driver.counters().operations)

    def _collect(self, raw: RunResult, arrivals: Sequence[int]) -> RdmaRun:
        driver, run = self.driver, RdmaRun(raw=raw)
        run.memories = [bytearray(memory) for (memory,) in raw.memories]
        configure, write, end = raw.phases
        check_identities(driver, configure.reads)
        for words in write.reads:
            reads = Reads(words)
            taken = [reads.take(driver.take_completion()) for _ in words]
            run.completions.append([driver.completion_of(values) for values in taken])
        for words, count in zip(end.reads, arrivals, strict=True):
            reads = Reads(words)
            taken = [reads.take(driver.take_arrival()) for _ in range(count)]
            run.arrivals.append([driver.arrival_of(values) for values in taken])
            run.counters.append(driver.counters_of(reads.take(driver.counters())))
        return run
