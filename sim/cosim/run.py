"""Request and result of a co-simulation, passed between processes as pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.hbm import Hbm
from fanin.link import LinkConfig
from fanin.sim.cosim.live import Board, LiveHosts
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.state import FailedCheck
from fanin.sim.cosim.watch import Watch
from fanin.sim.cosim.window import Window
from fanin.sim.switch.base import Job, Switch
from fanin.sim.tree import SwitchTree

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Intervals = npt.NDArray[np.uint64]  # rows of rising edges: the first of an interval, and the first after it

#: An entry of the event trace, as dpi.cpp writes it.
EVENT = np.dtype([("cycle", "<u8"), ("events", "<u8"), ("node", "<u4"), ("reserved", "<u4")])
MEMORY_LATENCY = 64  # cycles from a burst's address to its first beat, or from its last beat to the response
QUIET_CYCLES = 600  # cycles from any register of a node to the next frame


def write_memory(place: Path, content: npt.NDArray) -> None:
    """Write a memory's content to a file. Raises InputError with the file's name."""
    try:
        content.tofile(place)
    except OSError as error:  # NumPy's message names neither file nor cause
        raise InputError(f"{place}: cannot be written ({error}); is the disk full?") from error


@dataclass
class Phase:
    """Part of a run in which hosts carry out one program each.

    All programs start together. The next phase begins at the end of the window (docs/scale.md) in which the
    last program ended.

    - ``programs``: per node, in order; nodes after the last program have none.
    - ``settled``: begin only when no frame is in flight; nodes must have stopped sending.
    - ``kept``: report the results so far after this phase: see ``keep`` of ``Simulator.run``.
    """

    name: str
    programs: list[HostProgram]
    settled: bool = False
    kept: bool = False


@dataclass
class RunRequest:
    """Input of a simulator's process.

    If the nodes of a run are spread over ranks, each rank has its own request: ``share_of``.
    """

    nodes: int
    period_ps: int
    memories: list[list[Path]]  # per node, per memory port, in order; a port that writes changes its file
    phases: list[Phase]
    switch: Callable[[], Switch | SwitchTree]  # a tree has its job already
    jobs: list[Job]
    link: LinkConfig
    switch_ns: float
    seed: int
    #: nodes, or names of switches below the root, and times in ps from which their links drop every frame
    cuts: tuple[tuple[int | str, int], ...] = ()
    watch: Callable[[int], Watch] = Watch  # makes the observer of the frames, for a number of nodes
    memory_latency: int = MEMORY_LATENCY  # cycles
    hbm: Hbm | None = None  # model of memories, instead of a constant latency; for nodes that only read them
    memory_repeats: int = 1  # how many times a memory's bytes follow one another; 1 for nodes that write
    mac_bytes_per_cycle: float = 0.0  # rate of the links, to which MACs keep; 0: a beat per cycle
    memory_bytes_per_cycle: float = 0.0  # limit of each memory port and direction; 0: a beat per cycle
    watchdog: int = 200_000  # cycles without progress that end the run
    event_mask: int = 0  # bit n selects bit n of a node's events
    event_limit: int = 1_000_000  # greatest number of entries in the event trace
    writable: tuple[tuple[bool, ...], ...] = ()  # per node and memory port; set by Simulator.run
    host_ports: tuple[bool, ...] = ()  # per node, whether it has a host packet port; set by Simulator.run
    shares: tuple[range, ...] = ()  # the nodes of each rank; set by Simulator.run
    rank: int = 0
    hosts: Callable[[Board], LiveHosts] | None = None  # drives the run after the phases; picklable
    independent_hosts: bool = False  # hosts of one rank need no others, so that several ranks may have hosts
    quiet_cycles: int = QUIET_CYCLES  # cycles without an event before time is skipped with live hosts
    endless: bool = False  # hosts wait for events outside the simulation, so that no progress is no error
    trace: Path | None = None  # file of the event trace
    pcap: Path | None = None  # file of the frames at the switch
    link_log: Path | None = None  # file of the frames on all links
    wave: tuple[Window, Path] | None = None  # only for a simulator that was built for waveforms

    @property
    def own_nodes(self) -> range:
        """Nodes of this rank."""
        return self.shares[self.rank]

    def share_of(self, rank: int) -> RunRequest:
        """Return the part of the request for a rank's nodes."""
        nodes = self.shares[rank]
        part = slice(nodes.start, nodes.stop)
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
    """First and last rising edge of a phase, and the words that its programs read, per program."""

    name: str
    start: int
    end: int
    reads: list[Words]


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    - ``cycle``: rising edge.
    - ``phases``: phases that have ended.
    - ``operations``: operations that the watch has counted, of all nodes; with live hosts their own count.
    - ``frames``: frames that nodes have sent.
    """

    cycle: int
    phases: int
    operations: int
    frames: int


@dataclass
class RunResult:
    """Result of a run, complete or up to the time of ``error``."""

    phases: list[PhaseResult] = field(default_factory=list)
    cycles: int = 0
    skipped_ps: int = 0  # simulated time without cycles
    hosts: Any = None  # LiveHosts.result(); None if the run has failed
    error: str = ""  # reason of a failure
    failed_check: FailedCheck | None = None  # the check that failed, if a check ended the run
    last_reads: list[Words] = field(default_factory=list)  # per node, reads of the unfinished phase
    frames: dict[str, int] = field(default_factory=dict)  # frames that nodes sent, by kind
    links: list[dict[str, dict[str, int]]] = field(default_factory=list)  # per node: up, down
    switch: dict[str, int] = field(default_factory=dict)  # counters of the switch
    jobs: dict[int, dict[str, int]] = field(default_factory=dict)  # counters of the switch by job
    switches: dict[str, dict[str, int]] = field(default_factory=dict)  # of a tree: counters by switch
    trunks: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # of a tree: links of switches, by direction
    watched: Any = None  # result of the request's ``watch``; None if the run did not begin
    bytes_read: list[list[int]] = field(default_factory=list)  # per node, per memory port
    bytes_written: list[list[int]] = field(default_factory=list)  # per node, per memory port
    occupied: list[Intervals] = field(default_factory=list)  # per node: intervals of traffic on its MAC's link
    memories: list[list[Bytes]] = field(default_factory=list)  # final memories of nodes that write theirs
    events: npt.NDArray = field(default_factory=lambda: np.zeros(0, EVENT))
    recorded: int = 0  # rising edges in the waveform
    seconds: float = 0.0  # duration by the wall clock
    cpu_seconds: float = 0.0  # processor time of the simulator's one thread, summed over ranks
    silent_rank: int | None = None  # the rank that missed a meeting
    network_seconds: float = 0.0  # part of ``seconds`` in which frames were carried
    meetings: int = 0  # number of meetings; 0 with one rank
    meeting_seconds: list[float] = field(default_factory=list)  # per rank: time of waiting for others

    def add(self, other: RunResult) -> None:
        """Append the results of the next rank's nodes."""
        for phase, other_phase in zip(self.phases, other.phases, strict=True):
            phase.reads += other_phase.reads
        for name in ("last_reads", "bytes_read", "bytes_written", "occupied", "meeting_seconds"):
            getattr(self, name).extend(getattr(other, name))
        if self.hosts is not None and other.hosts is not None:
            self.hosts.add(other.hosts)
        self.events = np.concatenate([self.events, other.events])
        self.cpu_seconds += other.cpu_seconds


def kept_file(folder: Path, phases: int) -> Path:
    """Return the file in a simulator's folder with the results of its first ``phases`` phases."""
    return folder / f"kept{phases}"


def in_order(events: npt.NDArray, limit: int) -> npt.NDArray:
    """Return the first ``limit`` entries of an event trace, sorted by cycle and then by node."""
    return events[np.lexsort((events["node"], events["cycle"]))][:limit]
