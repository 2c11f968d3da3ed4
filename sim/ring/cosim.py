"""Runs all-reduces on N simulated ring nodes: memories filled, descriptors posted, sums read back."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.clock import CLOCK_MHZ
from fanin.errors import InputError
from fanin.hdl.ring.node import RingNode
from fanin.host.ring import RingDriver, RingMember, RingStatus
from fanin.job import worker_endpoint
from fanin.ring import MAX_NODES, MIN_NODES, RingConfig
from fanin.sim.cosim.build import check_build
from fanin.sim.cosim.clock import mac_rate, period_of
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase, Progress, RunRequest, RunResult
from fanin.sim.cosim.simulator import Group, Simulator
from fanin.sim.network import LinkConfig
from fanin.sim.switch.forward import Forwarder

Float32 = npt.NDArray[np.float32]

JOB_ID = 1
QUEUE = 8  # descriptors of one run
_GUARD_WORDS = 2  # between vectors, and before and behind them
_GUARD = 0xA5  # what every byte of them holds
_CONTROL_CYCLES = 4  # a MAC's link is occupied no longer than that by a control frame


@dataclass
class RingRun:
    """What came out of a run; ``sums`` per node, per vector."""

    sums: list[list[Float32]] = field(default_factory=list)
    status: list[RingStatus] = field(default_factory=list)  # per node
    counters: list[dict[str, int]] = field(default_factory=list)  # per node
    intact: bool = True  # memory around the vectors is as it was
    raw: RunResult = field(default_factory=RunResult)

    @property
    def cycles(self) -> int:
        """From the first descriptor to the last sum in memory, at the slowest node."""
        return max(counters["cycles"] for counters in self.counters)

    @property
    def failed(self) -> bool:
        """Whether a node has stopped with an error."""
        return any(status.failed for status in self.status)

    def transmit_busy(self, node: int) -> float:
        """Share of the time in which a node's link was occupied, from its first to its last DATA frame.

        Only for vectors of many frames: short intervals at the end are taken for control frames.
        """
        begin, end = (column.astype(np.int64) for column in self.raw.occupied[node].T)
        last = np.flatnonzero(end - begin > _CONTROL_CYCLES)[-1] + 1
        return float((end[:last] - begin[:last]).sum() / (end[last - 1] - begin[0]))


@dataclass(frozen=True)
class _Layout:
    """Where the vectors lie in a node's memory, each on a word's boundary, with guards around them."""

    config: RingConfig
    counts: tuple[int, ...]

    def _bounds(self) -> list[int]:
        """The byte at which each vector begins, and the one at which memory ends."""
        words = np.cumsum([_GUARD_WORDS, *(self.config.words(n) + _GUARD_WORDS for n in self.counts)])
        return (words * self.config.width // 8).tolist()

    @property
    def addresses(self) -> list[int]:
        return self._bounds()[:-1]

    def write(self, path: Path, vectors: Sequence[Float32]) -> None:
        memory = np.full(self._bounds()[-1], _GUARD, dtype=np.uint8)
        for address, vector in zip(self.addresses, vectors, strict=True):
            memory[address : address + 4 * vector.size] = vector.view(np.uint8)
        memory.tofile(path)

    def read(self, path: Path) -> tuple[list[Float32], bool]:
        """The vectors, and whether all around them is intact."""
        memory = np.fromfile(path, dtype=np.uint8)
        vectors = []
        for address, count in zip(self.addresses, self.counts, strict=True):
            part = memory[address : address + 4 * count]
            vectors.append(part.copy().view(np.float32))
            part[:] = _GUARD
        return vectors, bool((memory == _GUARD).all())


class RingCosim:
    """N ring nodes of ``config`` behind a forwarding switch, built once; each ``all_reduce`` is a run.

    Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(self, config: RingConfig, *, nodes: int, clock_mhz: float = CLOCK_MHZ, quiet: bool = False):
        if nodes not in range(MIN_NODES, MAX_NODES + 1):
            raise InputError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
        self.period_ps = period_of(clock_mhz)
        check_build()
        self.config = config
        self.nodes = nodes
        self.driver = RingDriver(config)
        self._simulator = Simulator([Group(RingNode(config=config, queue=QUEUE), nodes)], quiet=quiet)

    def all_reduce(
        self,
        vectors: Sequence[Sequence[Float32]],
        *,
        link: LinkConfig | None = None,
        switch_ns: float = 400.0,
        timeout: int = 20_000,
        retries: int = 100,
        seed: int = 0,
        pcap: Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> RingRun:
        """Reduce every vector; ``vectors`` are, per node, its float32 arrays, 1 to 8 of them, of equal lengths.

        They may be those of fewer nodes than there are: the others keep still. ``timeout`` is in cycles. The
        MACs keep to the links' rate. Raises ValueError for vectors that are not alike, SimulationFailed when
        the simulation itself cannot go on.
        """
        layout, link, nodes = self._layout(vectors), link or LinkConfig(), len(vectors)
        with tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
            paths = [Path(temporary, f"memory{node}") for node in range(nodes)]
            for path, own in zip(paths, vectors, strict=True):
                layout.write(path, [np.ascontiguousarray(v, dtype=np.float32).reshape(-1) for v in own])
            macs = [worker_endpoint(node).mac for node in range(nodes)]
            members = [
                RingMember(id=JOB_ID, macs=macs, rank=node, timeout=timeout, retries=retries)
                for node in range(nodes)
            ]
            idle = self.nodes - nodes
            unused = Path(temporary, "unused")
            unused.touch()
            request = RunRequest(
                nodes=self.nodes,
                period_ps=self.period_ps,
                memories=[[path] for path in [*paths, *[unused] * idle]],
                phases=[
                    Phase("start", [*map(self._start, members), *[HostProgram()] * idle]),
                    Phase("reduce", [self._reduce(layout)] * nodes + [HostProgram()] * idle),
                ],
                switch=functools.partial(Forwarder.of, macs),
                jobs=[],
                link=link,
                switch_ns=switch_ns,
                seed=seed,
                mac_bytes_per_cycle=mac_rate(link, self.period_ps, self.config.width),
                watchdog=100_000 + 4 * timeout,
                pcap=pcap,
            )
            return self._collect(self._simulator.run(request, progress=progress), layout, paths)

    def _layout(self, vectors: Sequence[Sequence[Float32]]) -> _Layout:
        counts = {tuple(int(np.size(vector)) for vector in own) for own in vectors}
        if len(vectors) not in range(MIN_NODES, self.nodes + 1) or len(counts) != 1:
            raise ValueError(
                f"vectors must be of equal lengths at {MIN_NODES} to {self.nodes} nodes, not {sorted(counts)} "
                f"at {len(vectors)}"
            )
        layout = _Layout(self.config, counts.pop())
        if not 1 <= len(layout.counts) <= QUEUE or min(layout.counts) < 1:
            raise ValueError(f"vectors must be 1 to {QUEUE} with a value at least, not {layout.counts}")
        return layout

    def _wait(self, program: HostProgram) -> HostProgram:
        """Until nothing is to be waited for."""
        return program.poll_field(self.driver.registers, "status", "busy", 0)

    def _start(self, member: RingMember) -> HostProgram:
        driver, program = self.driver, HostProgram()
        for batch in driver.identify(), driver.configure(member), driver.start():
            program.extend(batch.operations)
        return self._wait(program)

    def _reduce(self, layout: _Layout) -> HostProgram:
        driver, program = self.driver, HostProgram()
        program.extend(driver.command("clear_counters").operations)
        for address, count in zip(layout.addresses, layout.counts, strict=True):
            program.extend(driver.post(address, count).operations)
        self._wait(program)
        return program.extend(driver.wait().operations).extend(driver.counters().operations)

    def _collect(self, raw: RunResult, layout: _Layout, paths: Sequence[Path]) -> RingRun:
        driver, run = self.driver, RingRun(raw=raw)
        start, reduce = raw.phases
        for words in start.reads[: len(paths)]:
            driver.check_identity(driver.identify().results(words.tolist()))
        for words in reduce.reads[: len(paths)]:
            status = driver.wait()
            count = sum(operation.data is None for operation in status.operations)
            run.status.append(driver.status_of(status.results(words[:count].tolist())))
            run.counters.append(driver.counters_of(driver.counters().results(words[count:].tolist())))
        for path in paths:
            sums, intact = layout.read(path)
            run.sums.append(sums)
            run.intact &= intact
        return run
