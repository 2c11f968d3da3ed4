"""What a co-simulation is asked to do, and what it answers; handed between processes as pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.hbm import Hbm
from fanin.sim.cosim.live import Board, LiveHosts
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.state import FailedCheck
from fanin.sim.cosim.window import Window
from fanin.sim.network import LinkConfig
from fanin.sim.switch.base import Job, Switch

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Intervals = npt.NDArray[np.uint64]  # rows of rising edges: the first of an interval, and the first after it

#: An entry of the event trace, as dpi.cpp writes it.
EVENT = np.dtype([("cycle", "<u8"), ("events", "<u8"), ("node", "<u4"), ("reserved", "<u4")])
MEMORY_LATENCY = 64  # cycles from a burst's address to its first beat, or from its last one to the response
QUIET_CYCLES = 600  # in which a packet goes from any register of a node to the next frame


def write_memory(place: Path, content: npt.NDArray) -> None:
    """A memory's content as a file. Raises InputError naming it."""
    try:
        content.tofile(place)
    except OSError as error:  # NumPy's names neither file nor cause
        raise InputError(f"{place}: cannot be written ({error}); is the disk full?") from error


@dataclass
class Phase:
    """A program for each host, in the order of nodes; nodes after the last one keep still.

    All start together, and the next phase begins at the end of the window (docs/scale.md) in which the last
    has ended. A ``settled`` one begins when, besides, no frame is in flight: nodes must have stopped sending.
    After a ``kept`` one, the caller gets what came out until then: see ``Simulator.run``.
    """

    name: str
    programs: list[HostProgram]
    settled: bool = False
    kept: bool = False


@dataclass
class RunRequest:
    """Everything that a simulator's process needs.

    Of a run whose nodes are spread over ranks each rank has a request of its own: ``share_of``.
    """

    nodes: int
    period_ps: int
    memories: list[list[Path]]  # per node, per memory port, in their order; a port that writes changes its file
    phases: list[Phase]
    switch: Callable[[], Switch]
    jobs: list[Job]
    link: LinkConfig
    switch_ns: float
    seed: int
    cuts: tuple[tuple[int, int], ...] = ()  # nodes, and the ps from which their links drop every frame
    memory_latency: int = MEMORY_LATENCY
    hbm: Hbm | None = None  # what memories are, in place of a constant latency; for nodes that only read theirs
    memory_repeats: int = 1  # how many times a memory's bytes follow one another; 1 for nodes that write
    mac_bytes_per_cycle: float = 0.0  # the links' rate, to which a MAC holds its node; 0: a beat a cycle
    memory_bytes_per_cycle: float = 0.0  # of each memory port and direction, at most; 0: a beat a cycle
    watchdog: int = 200_000
    event_mask: int = 0  # bit n: bit n of a node's events, of whatever kind it is
    event_limit: int = 1_000_000
    writable: tuple[tuple[bool, ...], ...] = ()  # per node and memory port; set by Simulator.run
    host_ports: tuple[bool, ...] = ()  # which nodes have a host packet port; likewise
    shares: tuple[range, ...] = ()  # the nodes of each rank; likewise
    rank: int = 0
    hosts: Callable[[Board], LiveHosts] | None = None  # drives the run after the phases; to be pickled
    hosts_apart: bool = False  # those of a rank's nodes need no others: several ranks may have hosts
    quiet_cycles: int = QUIET_CYCLES  # in which nothing happens, before live hosts have time skipped
    endless: bool = False  # hosts wait for what is outside the simulation: nothing happening is no error
    trace: Path | None = None
    pcap: Path | None = None
    link_log: Path | None = None
    wave: tuple[Window, Path] | None = None  # of a simulator that was built for it

    @property
    def own(self) -> range:
        """The nodes of this rank."""
        return self.shares[self.rank]

    def share_of(self, rank: int) -> RunRequest:
        """The same run, as a rank carries it out: with what concerns its own nodes."""
        own = self.shares[rank]
        part = slice(own.start, own.stop)
        return replace(
            self,
            rank=rank,
            memories=self.memories[part],
            writable=self.writable[part],
            host_ports=self.host_ports[part],
            phases=[replace(phase, programs=phase.programs[part]) for phase in self.phases],
        )


@dataclass
class PhaseResult:
    """When a phase began and ended (rising edges), and what its programs read, per program."""

    name: str
    start: int
    end: int
    reads: list[Words]


@dataclass(frozen=True)
class Progress:
    """How far a run is: rising edges, phases ended, operations whose RESULT a node has received, all nodes.

    With live hosts, operations are what they count. ``frames``: that nodes have sent.
    """

    cycle: int
    phases: int
    operations: int
    frames: int


@dataclass
class RunResult:
    """What came out, complete or up to the point where ``error`` happened."""

    phases: list[PhaseResult] = field(default_factory=list)
    cycles: int = 0
    skipped_ps: int = 0  # simulated time that no cycles were run for
    hosts: Any = None  # LiveHosts.result(); None if the run has failed
    error: str = ""
    failed_check: FailedCheck | None = None
    last_reads: list[Words] = field(default_factory=list)  # per node, of the phase that was under way
    allreduce_cycles: list[int] = field(default_factory=list)  # AGG leaves → its RESULT is taken, per operation
    frames: dict[str, int] = field(default_factory=dict)  # that nodes sent, by kind
    links: list[dict[str, dict[str, int]]] = field(default_factory=list)  # per node: up, down
    switch: dict[str, int] = field(default_factory=dict)
    jobs: dict[int, dict[str, int]] = field(default_factory=dict)
    first_packet: list[dict[str, int]] = field(default_factory=list)  # per node: cycle of each step it reached
    bytes_read: list[list[int]] = field(default_factory=list)  # per node, per memory port
    bytes_written: list[list[int]] = field(default_factory=list)  # likewise
    occupied: list[Intervals] = field(default_factory=list)  # per node, when its MAC's link was
    memories: list[list[Bytes]] = field(default_factory=list)  # of nodes that write theirs, at the end
    events: npt.NDArray = field(default_factory=lambda: np.zeros(0, EVENT))
    recorded: int = 0  # rising edges in the waveform
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the simulator's one thread; with ranks, of all of them
    silent: int | None = None  # the rank that has not come to a meeting
    network_seconds: float = 0.0  # of it, in which frames were carried
    meetings: int = 0  # of several ranks
    meeting_seconds: list[float] = field(default_factory=list)  # per rank: in which it waited for others

    def add(self, other: RunResult) -> None:
        """Put what came out at the nodes of the next rank behind what there is."""
        for phase, own in zip(self.phases, other.phases, strict=True):
            phase.reads += own.reads
        for name in ("last_reads", "bytes_read", "bytes_written", "occupied", "meeting_seconds"):
            getattr(self, name).extend(getattr(other, name))
        if self.hosts is not None and other.hosts is not None:
            self.hosts.add(other.hosts)
        self.events = np.concatenate([self.events, other.events])
        self.cpu_seconds += other.cpu_seconds


def kept_file(folder: Path, phases: int) -> Path:
    """Return the file in a simulator's folder with what came out of its first ``phases`` phases."""
    return folder / f"kept{phases}"


def in_order(events: npt.NDArray, limit: int) -> npt.NDArray:
    """The first ``limit`` entries of an event trace by cycle, and in a cycle by node."""
    return events[np.lexsort((events["node"], events["cycle"]))][:limit]
