# amaranth: UnusedElaboratable=no
"""All-reduces on N simulated ring nodes: memories are filled, descriptors posted, sums read back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Unpack

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.hdl.ring.nic import RingNic
from fanin.hdl.ring.node import RingNode
from fanin.host.driver import Operation
from fanin.job import worker_endpoint
from fanin.ring.driver import RingDriver, RingFindings, RingMember, RingNicDriver, RingStatus
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig
from fanin.ring.golden.all_reduce import value_type
from fanin.ring.golden.random_bits import RandomBits
from fanin.sim.cosim.cluster import Cluster, Reads, Settings, check_identities
from fanin.sim.cosim.live import Board, LiveHosts
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Bytes, Phase, RunResult, Words
from fanin.sim.cosim.simulator import Group
from fanin.sim.ring.check import RETRIES, TIMEOUT, CheckHosts
from fanin.sim.ring.flow import Flow, FlowCounters, FlowHosts

Float32 = npt.NDArray[np.float32]

JOB_ID = 1
QUEUE = 8  # unfinished descriptors that a node holds: the most vectors of a run
_GUARD_WORDS = 2  # words between vectors, before the first vector and after the last one
_GUARD = 0xA5  # content of every guard byte
_CONTROL_CYCLES = 4  # most cycles that a control frame occupies a MAC's link


@dataclass
class RingRun:
    """Result of a run.

    - ``sums``: per host and vector, the vector in the host's memory after the run.
    - ``status``, ``counters``: per node, host by host.
    - ``intact``: no node wrote to memory around the vectors.
    - ``flow_counters``: per host; empty without a flow.
    - ``raw``: result of the simulation.
    """

    sums: list[list[Float32]] = field(default_factory=list)
    status: list[RingStatus] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)
    intact: bool = True
    flow_counters: list[FlowCounters] = field(default_factory=list)
    raw: RunResult = field(default_factory=RunResult)

    @property
    def cycles(self) -> int:
        """Cycles from the first descriptor to the last sum in memory, at the slowest node."""
        return max(counters["cycles"] for counters in self.counters)

    @property
    def failed(self) -> bool:
        """Whether a node has stopped with an error."""
        return any(status.failed for status in self.status)

    def transmit_busy(self, node: int) -> float:
        """Return the share of time in which a node's link was occupied, from its first to its last DATA frame.

        Valid only for vectors of many frames: short intervals at the end count as control frames.
        """
        begin, end = (column.astype(np.int64) for column in self.raw.occupied[node].T)
        last = np.flatnonzero(end - begin > _CONTROL_CYCLES)[-1] + 1
        return float((end[:last] - begin[:last]).sum() / (end[last - 1] - begin[0]))


@dataclass(frozen=True)
class _Layout:
    """Layout of the vectors in a host's memory: aligned to words, with guards around them."""

    config: RingConfig
    counts: tuple[int, ...]

    def _bounds(self) -> list[int]:
        """Return the first byte of each vector, and the end of memory."""
        words = np.cumsum([_GUARD_WORDS, *(self.config.words(n) + _GUARD_WORDS for n in self.counts)])
        return (words * self.config.word_bytes).tolist()

    @property
    def addresses(self) -> list[int]:
        return self._bounds()[:-1]

    def fill(self, vectors: Sequence[Float32]) -> Bytes:
        """Return a memory with the vectors and guards."""
        memory = np.full(self._bounds()[-1], _GUARD, dtype=np.uint8)
        for address, vector in zip(self.addresses, vectors, strict=True):
            values = np.ascontiguousarray(vector, dtype=value_type(self.config)).reshape(-1)
            memory[address : address + values.nbytes] = values.view(np.uint8)
        return memory

    def read(self, memory: Bytes) -> tuple[list[Float32], bool]:
        """Return the vectors in a memory, and whether the guards are intact; overwrites the vectors."""
        vectors = []
        for address, count in zip(self.addresses, self.counts, strict=True):
            part = memory[address : address + self.config.value_bytes * count]
            vectors.append(part.copy().view(value_type(self.config)))
            part[:] = _GUARD
        return vectors, bool((memory == _GUARD).all())


class RingCosim:
    """Hosts with ring nodes at a forwarding switch, built once; each ``all_reduce`` is a run.

    - ``nodes``: nodes of a ring, ``MIN_NODES`` to ``MAX_NODES``; also the number of hosts, one node of each
      ring.
    - ``engines``: nodes of a host, and number of rings: node e of each host belongs to ring e. The nodes of a
      host share its memory, and each reduces a part of each vector. At most ``MAX_NODES`` nodes in all.
    - ``nic``: nodes are smart NICs, and a flow of other traffic may run beside the ring.
    - ``clock_mhz``: clock of the nodes.
    - ``quiet``: do not print the steps of the build.

    Nodes are numbered host by host. Raises InputError for a missing tool and for sizes out of range.
    """

    def __init__(
        self,
        config: RingConfig,
        *,
        nodes: int,
        engines: int = 1,
        nic: bool = False,
        clock_mhz: float = CLOCK_MHZ,
        quiet: bool = False,
    ):
        if nodes not in range(MIN_NODES, MAX_NODES + 1):
            raise InputError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
        if engines not in range(1, MAX_NODES // nodes + 1):
            raise InputError(f"engines must be 1 to {MAX_NODES // nodes} at {nodes} nodes, not {engines}")
        self.config = config
        self.nodes = nodes
        self.engines = engines
        node = RingNic if nic else RingNode
        self.driver = RingNicDriver(config) if nic else RingDriver(config)
        self._cluster = Cluster(
            lambda: [Group(node(config=config, queue=QUEUE), nodes * engines)],
            nodes_per_memory=engines,
            clock_mhz=clock_mhz,
            quiet=quiet,
        )
        self.period_ps = self._cluster.period_ps

    def all_reduce(
        self,
        vectors: Sequence[Sequence[Float32]],
        *,
        timeout: int = 20_000,
        retries: int = 100,
        seed: int = 0,
        memory_gbps: float | None = None,
        flow: Flow | None = None,
        **settings: Unpack[Settings],
    ) -> RingRun:
        """Reduce every vector.

        - ``vectors``: per host, 1 to ``QUEUE`` arrays of float32, or of 16-bit codes, of equal lengths at all
          hosts. If there are more hosts than entries, the last hosts take no part.
        - ``timeout``: cycles until a node sends again.
        - ``retries``: retransmissions until a node fails.
        - ``seed``: seed of the links.
        - ``flow``: traffic between the hosts of smart NICs during the all-reduce.

        ``memory_gbps`` and ``settings`` are those of ``Cluster.run``. Raises ValueError for vectors of
        different lengths, and for a flow between nodes without a host packet port. Raises SimulationFailed if
        the simulation itself fails.
        """
        layout, host_count = self._layout(vectors), len(vectors)
        rings = [
            [worker_endpoint(node).mac for node in range(ring, host_count * self.engines, self.engines)]
            for ring in range(self.engines)
        ]
        members = [
            RingMember(
                id=JOB_ID + ring,
                macs=macs,
                rank=host,
                timeout=timeout,
                retries=retries,
                bits=RandomBits(1 + ring),
            )
            for host in range(host_count)
            for ring, macs in enumerate(rings)
        ]
        start = Phase("start", [self._start(member, flow) for member in members])
        reduce, read_results = self._reduce(layout, flow), self._read_results()
        phases: list[Phase] = [start]
        hosts: Callable[[Board], LiveHosts] | None = None
        if flow:  # live hosts, which send frames while the nodes reduce
            last = HostProgram().extend(read_results)
            hosts = functools.partial(FlowHosts, flow=flow, reduce=reduce * host_count, last=last)
        else:
            programs = [program.extend(read_results) for program in reduce] * host_count
            phases.append(Phase("reduce", programs))
        raw = self._cluster.run(
            memories=([layout.fill(host_vectors)] for host_vectors in vectors),
            phases=phases,
            hosts=hosts,
            longest_wait=4 * timeout,
            seed=seed,
            memory_gbps=memory_gbps,
            **settings,
        )
        check_identities(self.driver, raw.phases[0].reads)
        reads, flow_counters = raw.hosts if flow else (raw.phases[1].reads, [])
        return self._collect(raw, layout, map(np.array, reads), flow_counters)

    def serve(
        self,
        hosts: Callable[[Board], LiveHosts],
        *,
        size: int,
        bits: RandomBits,
        timeout: int = 20_000,
        retries: int = 100,
        **settings: Unpack[Settings],
    ) -> None:
        """Start the job of one ring of all nodes, each with ``size`` bytes of memory; ``hosts`` drive the rest.

        ``bits``: random bits of the nodes, for stochastic rounding.
        There must be one node per host. Raises SimulationFailed as ``all_reduce`` does.
        """
        macs = [worker_endpoint(node).mac for node in range(self.nodes)]
        members = [
            RingMember(id=JOB_ID, macs=macs, rank=rank, timeout=timeout, retries=retries, bits=bits)
            for rank in range(self.nodes)
        ]
        raw = self._cluster.run(
            memories=([np.zeros(size, np.uint8)] for _ in members),
            phases=[Phase("start", [self._start(member, None) for member in members])],
            hosts=hosts,
            longest_wait=4 * timeout,
            **settings,
        )
        check_identities(self.driver, raw.phases[0].reads)

    def check(self, lists: Mapping[int, Sequence[int]]) -> dict[int, RingFindings]:
        """Check whether the nodes form a ring; return the findings of each node in ``lists``.

        ``lists``: per node, the nodes of the ring in order, as that node's host lists them. A node without a
        list is not started. There must be one node per host. Raises SimulationFailed as ``all_reduce`` does.
        """
        members = {
            node: RingMember(
                id=JOB_ID,
                macs=[worker_endpoint(member).mac for member in order],
                rank=list(order).index(node),
                timeout=TIMEOUT,
                retries=RETRIES,
                watch=True,
            )
            for node, order in lists.items()
        }
        raw = self._cluster.run(
            memories=([np.zeros(self.config.word_bytes, np.uint8)] for _ in range(self.nodes)),
            phases=[],
            hosts=functools.partial(CheckHosts, driver=self.driver, members=members),
            longest_wait=4 * TIMEOUT * RETRIES,
        )
        findings: dict[int, RingFindings] = raw.hosts
        return findings

    def _layout(self, vectors: Sequence[Sequence[Float32]]) -> _Layout:
        """Return the layout of a host's vectors. Raises ValueError if lengths differ or are out of range."""
        counts = {tuple(int(np.size(vector)) for vector in host_vectors) for host_vectors in vectors}
        if len(vectors) not in range(MIN_NODES, self.nodes + 1) or len(counts) != 1:
            raise ValueError(
                f"vectors must be of equal lengths at {MIN_NODES} to {self.nodes} hosts, not {sorted(counts)} "
                f"at {len(vectors)}"
            )
        layout = _Layout(self.config, counts.pop())
        if not 1 <= len(layout.counts) <= QUEUE or min(layout.counts) < 1:
            raise ValueError(
                f"vectors must be 1 to {QUEUE} per host, each of 1 or more values, not {layout.counts}"
            )
        return layout

    def _wait(self, program: HostProgram) -> HostProgram:
        """Add a wait until the node is idle."""
        return program.poll_field(self.driver.registers, "status", "busy", 0)

    def _start(self, member: RingMember, flow: Flow | None) -> HostProgram:
        driver, program = self.driver, HostProgram()
        if flow:
            if not isinstance(driver, RingNicDriver):
                raise ValueError("flow must be between smart NICs: these nodes have no host packet port")
            program.extend(driver.share(flow.share).operations)
        for batch in driver.identify(), driver.configure(member), driver.start():
            program.extend(batch.operations)
        self._wait(program)
        # A flow's first frame is in flight when the descriptors are posted, and must be counted.
        return program.extend(driver.command("clear_counters").operations) if flow else program

    def _reduce(self, layout: _Layout, flow: Flow | None) -> list[HostProgram]:
        """Return a program for each node of a host: post its part of every vector, then wait for the sums."""
        driver = self.driver
        vectors = zip(layout.addresses, layout.counts, strict=True)
        posts = [driver.post_stripes(address, count, self.engines) for address, count in vectors]
        programs = []
        for batches in zip(*posts, strict=True):
            program = HostProgram()
            if flow is None:
                program.extend(driver.command("clear_counters").operations)
            program.extend(chain.from_iterable(batch.operations for batch in batches))
            programs.append(self._wait(program))
        return programs

    def _read_results(self) -> list[Operation]:
        """Return operations that read status and counters."""
        return [*self.driver.wait().operations, *self.driver.counters().operations]

    def _collect(
        self,
        raw: RunResult,
        layout: _Layout,
        words_of_nodes: Iterable[Words],
        flow_counters: list[FlowCounters],
    ) -> RingRun:
        driver, run = self.driver, RingRun(raw=raw, flow_counters=flow_counters)
        for words in words_of_nodes:
            reads = Reads(words)
            run.status.append(driver.status_of(reads.take(driver.wait())))
            run.counters.append(driver.counters_of(reads.take(driver.counters())))
        # Nodes of a host have one memory, so the memory of its first node is enough. ``status`` has the nodes
        # that took part.
        for (memory,) in raw.memories[: len(run.status) : self.engines]:
            sums, intact = layout.read(memory)
            run.sums.append(sums)
            run.intact &= intact
        return run
