"""Runs one-sided writes between simulated nodes: memories filled, writes posted, memories read back."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fanin.config import CLOCK_MHZ
from fanin.errors import InputError
from fanin.hdl.net.rdma.driver import Arrived, Completed, RdmaDriver
from fanin.hdl.net.rdma.node import ARRIVALS, COMPLETIONS, RdmaNode
from fanin.job import worker_endpoint
from fanin.rdma import FIRST_QUEUE_PAIR, Connection, RdmaConfig, Region, Write
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, Progress, RunRequest, RunResult
from fanin.sim.cosim.simulator import Simulator
from fanin.sim.network import LinkConfig
from fanin.sim.switch.base import Switch
from fanin.sim.switch.forward import Forwarder
from fanin.wire import Endpoint

MAX_NODES = 64
SOURCE_PORT = 0xC000  # and a queue pair's place: the port that its packets are sent from

End = tuple[int, int]  # a node, and a queue pair's place there


@dataclass(frozen=True)
class Pair:
    """A queue pair's two ends, and what each knows of the connection."""

    ends: tuple[End, End]
    connections: tuple[Connection, Connection]

    @classmethod
    def of(
        cls, a: tuple[int, int], b: tuple[int, int], *, psns: tuple[int, int] = (0, 0), **limits: int
    ) -> Pair:
        """Connect two ends; ``limits`` are MTU, window and retries."""
        there, back = psns
        first = Connection(FIRST_QUEUE_PAIR + b[1], there, back, **limits)
        return cls((a, b), (first, Connection(FIRST_QUEUE_PAIR + a[1], back, there, **limits)))


@dataclass
class RdmaRun:
    """What came out of a run, per node."""

    memories: list[bytearray] = field(default_factory=list)
    completions: list[list[Completed]] = field(default_factory=list)
    arrivals: list[list[Arrived]] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)

    @property
    def cycles(self) -> int:
        """From the first post to the last completion."""
        (writes,) = (phase for phase in self.raw.phases if phase.name == "write")
        return writes.end - writes.start


class RdmaCosim:
    """Nodes of ``config`` behind a forwarding switch, built once; each ``run`` begins anew.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self, config: RdmaConfig, *, nodes: int = 2, clock_mhz: float = CLOCK_MHZ, quiet: bool = False
    ):
        if nodes not in range(1, MAX_NODES + 1):
            raise InputError(f"nodes must be 1 to {MAX_NODES}, not {nodes}")
        if not 1 <= clock_mhz <= 2000:
            raise InputError(f"clock must be in 1…2000 MHz, not {clock_mhz:g}")
        self.config = config
        self.nodes = nodes
        self.period_ps = 2 * round(500_000 / clock_mhz)
        self.driver = RdmaDriver(config)
        self._simulator = Simulator(RdmaNode(config=config), nodes=nodes, quiet=quiet)

    def run(
        self,
        *,
        memories: Sequence[bytes],
        pairs: Sequence[Pair],
        regions: Sequence[Sequence[Region]],
        writes: Sequence[Sequence[tuple[int, Write]]],
        arrivals: Sequence[int] | None = None,
        link: LinkConfig | None = None,
        switch_ns: float = 400.0,
        timeout: int = 5_000,
        seed: int = 0,
        switch: Callable[[], Switch] | None = None,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> RdmaRun:
        """Post the ``writes`` of each node, each with its queue pair's place, in their order, and await all.

        ``memories`` are what the nodes' hold at first, ``arrivals`` how many messages with immediate data each
        host is to wait for; ``timeout`` is in cycles; ``switch`` takes the place of the one that forwards.
        Raises SimulationFailed when it cannot go on.
        """
        link = link or LinkConfig()
        macs = [worker_endpoint(node).mac for node in range(self.nodes)]
        awaited = arrivals or [0] * self.nodes
        if max(awaited) > ARRIVALS:
            raise ValueError(
                f"arrivals must be at most {ARRIVALS} a node, which takes them last, not {awaited}"
            )
        with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
            paths = [Path(temporary, f"memory{node}") for node in range(self.nodes)]
            for path, content in zip(paths, memories, strict=True):
                path.write_bytes(content)
            configure = [self._configure(n, pairs, own, timeout) for n, own in enumerate(regions)]
            request = RunRequest(
                nodes=self.nodes,
                period_ps=self.period_ps,
                memories=[[path] for path in paths],
                phases=[
                    Phase("configure", configure),
                    Phase("write", [self._write(own) for own in writes]),
                    Phase("end", [self._end(count) for count in awaited]),
                ],
                switch=switch or functools.partial(Forwarder.of, macs),
                jobs=[],
                link=link,
                switch_ns=switch_ns,
                seed=seed,
                mac_bytes_per_cycle=self._rate(link),
                watchdog=100_000 + 20 * timeout,
                pcap=pcap,
            )
            raw = self._simulator.run(request, progress=progress)
            return self._collect(raw, [bytearray(path.read_bytes()) for path in paths], awaited)

    def _rate(self, link: LinkConfig) -> float:
        """Bytes a cycle at which a MAC keeps its node; none where the link is no slower than the MAC's bus."""
        rate = link.gbps * self.period_ps / 8000
        return rate if rate < self.config.width / 8 else 0.0

    def _configure(
        self, node: int, pairs: Sequence[Pair], regions: Sequence[Region], timeout: int
    ) -> HostProgram:
        driver, program = self.driver, HostProgram()
        program.extend(driver.identify().operations)
        program.extend(driver.configure(worker_endpoint(node), timeout=timeout).operations)
        program.extend(driver.set_regions(regions).operations)
        for pair in pairs:
            for end, other, connection in zip(pair.ends, reversed(pair.ends), pair.connections, strict=True):
                if end[0] == node:
                    to = worker_endpoint(other[0])
                    peer = Endpoint(to.mac, to.ip, SOURCE_PORT + end[1])
                    program.extend(driver.connect(end[1], connection, peer).operations)
                    self._await(program, "status", "connecting", 0)
        return program

    def _await(self, program: HostProgram, register: str, name: str, value: int) -> None:
        """Until a field of one bit has a value."""
        registers = self.driver.registers
        (shift,) = (shift for part, shift in registers[register].shifts() if part.name == name)
        program.poll(registers.offset(register), value << shift, 1 << shift)

    def _write(self, writes: Sequence[tuple[int, Write]]) -> HostProgram:
        """Post while there is room, then take a completion for each post."""
        driver, program = self.driver, HostProgram()
        taken = 0
        for number, (index, write) in enumerate(writes):
            if number - taken == COMPLETIONS:
                self._take(program)
                taken += 1
            self._await(program, "status", "full", 0)
            program.extend(driver.post(index, write).operations)
            self._await(program, "status", "posting", 0)
        for _ in range(len(writes) - taken):
            self._take(program)
        return program

    def _take(self, program: HostProgram) -> None:
        self._await(program, "completion", "completed", 1)
        program.extend(self.driver.take_completion().operations)

    def _end(self, arrivals: int) -> HostProgram:
        driver, program = self.driver, HostProgram()
        for _ in range(arrivals):
            self._await(program, "arrival", "arrived", 1)
            program.extend(driver.take_arrival().operations)
        program.check(driver.registers.offset("refused_posts"), 0)
        return program.extend(driver.counters().operations)

    def _collect(self, raw: RunResult, memories: list[bytearray], arrivals: Sequence[int]) -> RdmaRun:
        driver, run = self.driver, RdmaRun(raw=raw)
        configure, write, end = raw.phases
        run.memories = memories
        for words in configure.reads:
            driver.check_identity(driver.identify().results(words.tolist()))
        for words in write.reads:
            taken = driver.take_completion()
            run.completions.append([driver.completed_of(taken.results([word])) for word in words.tolist()])
        for words, count in zip(end.reads, arrivals, strict=True):
            taken = driver.take_arrival()
            said = words[: 3 * count].reshape(-1, 3).tolist()
            run.arrivals.append([driver.arrived_of(taken.results(row)) for row in said])
            counters = words[3 * count :].tolist()
            run.counters.append(driver.counters_of(driver.counters().results(counters)))
        return run
