"""Network between nodes and switch: links with delay, bandwidth and faults, in simulated time.

Time is an integer number of picoseconds. A link accepts a frame when the frame's last byte has left the node or
the switch. The frame occupies the link for preamble, frame, FCS and inter-frame gap. It arrives ``delay`` after
the last bit of its FCS. Results depend only on these numbers and the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntFlag
from typing import Protocol

from fanin.job import MAX_RETRIES
from fanin.link import LinkConfig, check_delay
from fanin.sim.switch.base import Delivery, OutsideSwitch, Switch, SwitchKind
from fanin.tree import Tree, passed_switches
from fanin.wire.aggregation import MAX_VALUES, frame_length
from fanin.wire.ethernet import FCS_BYTES, GAP_BYTES, Encap

_MAX_FLIPPED_BITS = 8  # a corrupted frame has 1 to this many bits flipped
_PACKET_BYTES = frame_length(Encap.UDP, MAX_VALUES)  # longest frame of a job


MAX_TIMEOUT_NS = 1e13  # above the longest timeout of a node at any clock
SWITCH_NS = 400.0  # default: from a frame's last bit at the switch to the first bit of its answer
SLOWDOWN = 1000.0  # default with ``ports``: wall-clock seconds per simulated second
LONGEST_TIMEOUT_NS = 20_000.0  # default of NetworkConfig.longest_timeout_ns
PORTS_TIMEOUT_NS = 1e5  # longest_timeout_ns at Linux interfaces: 0.1 s of the wall clock by default
BOARDS_TIMEOUT_NS = 2e6  # longest_timeout_ns for boards: a host's switch takes longer than a real one
_TRIPS = 10  # a ceiling's least number of round trips: the first timeout of a node is ceiling / 8
_SLOW_NS = 4e9  # longest ceiling because of slow links; fits the timeout of a node at 1 GHz
MAX_WAITING = 1024  #: frames that a node has not taken, from which an outside switch gives it no more


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Settings of the network between the nodes, and of their retransmissions.

    - ``ports``: names of Linux interfaces, one per node; the switch is then outside the simulation.
    - ``here``: the workers whose nodes are simulated at ``ports``; default: all.
    - ``slowdown``: with ``ports``, the least wall-clock seconds per simulated second.
    - ``tree``: a tree of switches, whose job replaces the default one; None: one switch.
    """

    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS
    timeout_ns: float | None = None  #: fixed time until a packet is sent again; None: from round trips
    longest_timeout_ns: float = LONGEST_TIMEOUT_NS  #: ceiling of a timeout from round trips
    retries: int = 1000  #: retransmissions of a packet, at most MAX_RETRIES, until its node stops
    slots: int | None = None  #: slots of the job; default: all slots of a node
    seed: int = 0
    switch: SwitchKind = SwitchKind.EMBEDDED
    make_switch: Callable[[int], Switch] | None = None  #: makes another switch from a port count; picklable
    ports: tuple[str, ...] = ()
    here: tuple[int, ...] = ()
    slowdown: float = SLOWDOWN
    #: workers, or names of switches below the root, and the simulated seconds after which their links to the
    #: switch above drop every frame
    stops: tuple[tuple[int | str, float], ...] = ()
    tree: Tree | None = None

    def __post_init__(self) -> None:
        check_delay("switch_ns", self.switch_ns)
        if not 0 < self.ceiling_ns <= MAX_TIMEOUT_NS:
            raise ValueError(f"timeout_ns must be in (0, {MAX_TIMEOUT_NS:g}], not {self.ceiling_ns!r}")
        if self.retries not in range(MAX_RETRIES + 1):
            raise ValueError(f"retries must be in 0…{MAX_RETRIES}, not {self.retries!r}")
        if self.here and len(self.here) != len(self.ports):
            raise ValueError(f"here must be a worker for each of ports, {len(self.ports)}, not {self.here}")
        if self.tree and (self.make_switch or self.switch is SwitchKind.BMV2):
            raise ValueError("switches of a tree must be reference or embedded")

    @property
    def adaptive(self) -> bool:
        """Whether timeouts follow the measured round trips."""
        return self.timeout_ns is None

    @property
    def ceiling_ns(self) -> float:
        """Longest time until a packet is sent again: of each switch on a round trip, or 10 round trips."""
        if self.timeout_ns is not None:
            return self.timeout_ns
        slow = min(_TRIPS * self.trip_ns(), _SLOW_NS)
        return max(self.longest_timeout_ns * self.passed_switches, slow)

    @property
    def passed_switches(self) -> int:
        """Number of switches that a round trip passes."""
        return passed_switches(self.tree.levels if self.tree else 1)

    def trip_ns(self, extra: Callable[[LinkConfig], float] = lambda _: 0.0) -> float:
        """Return the longest time of a packet from a worker to the root and back, in ns, without waiting.

        ``extra``: addition per link and direction.
        """

        def way(link: LinkConfig) -> float:
            return link.delay_ns + link.host_ns + link.wire_time(_PACKET_BYTES) / 1000 + extra(link)

        trunks = self.tree.distances(lambda each: way(each.trunk(self.link))).values() if self.tree else [0.0]
        return 2 * (way(self.link) + max(trunks)) + self.passed_switches * self.switch_ns


@dataclass
class LinkStatistics:
    """Counters of frames on one direction of a link."""

    frames: int = 0  # frames sent
    bytes: int = 0  # bytes of these frames, without FCS
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    fcs_errors: int = 0  # corrupted copies that the receiver's FCS check caught


@dataclass(frozen=True)
class Arrival:
    """A frame at the end of a link: time in ps, bytes, and whether its FCS is wrong."""

    time: int
    frame: bytes
    error: bool = False


class LinkFaults(IntFlag):
    """Set of faults that a link applied to a frame; corrupted copies are counted separately."""

    DROPPED = 1
    REORDERED = 2
    DUPLICATED = 4


class Log(Protocol):
    """Interface of a log of all frames on links, such as :class:`fanin.sim.link_log.LinkLogWriter`."""

    def write(
        self, port: int, up: bool, begin: int, end: int, frame: bytes, faults: int, corrupted: int
    ) -> None:
        """Log a frame that a link accepts; frames come in the order of acceptance.

        - ``port``, ``up``: the link's port; direction to the switch, or down from it.
        - ``begin``: time of the first bit of the preamble on the wire, in ps.
        - ``end``: time of the last bit of the FCS on the wire, in ps.
        - ``faults``: value of LinkFaults.
        - ``corrupted``: number of corrupted copies.
        """


class Link:
    """One direction of a link: a FIFO at the link's rate, then the delay and its seeded faults.

    ``log`` receives every frame, with the link's ``port`` and ``up``.
    """

    def __init__(
        self, config: LinkConfig, seed: str, *, port: int = 0, up: bool = True, log: Log | None = None
    ):
        self.config = config
        self._port, self._up, self._log = port, up, log
        self.statistics = LinkStatistics()
        self.is_cut = False  # if True, every frame is dropped
        self.cut_at: int | None = None  # time in ps from which every frame is dropped
        self._random = random.Random(seed)
        self._idle_from = 0  # time when the sender's wire is idle again
        self._delay_ps = round(config.delay_ns * 1000)
        self._late_ps = round(config.late_ns * 1000)
        self._host_ps = round(config.host_ns * 1000)
        self._last_delivery = 0  # time when the host's software delivered the last frame
        self.min_latency = config.wire_time(0) + self._delay_ps + self._host_ps

    def _host_time(self) -> int:
        """Return the time of the host's software for one frame, in ps."""
        mean = self.config.host_jitter_ns
        return self._host_ps + (round(1000 * self._random.expovariate(1 / mean)) if mean else 0)

    def send(self, frame: bytes, time: int) -> list[Arrival]:
        """Send a frame at ``time`` ps; return its arrivals: none, one or two.

        ``time`` must not be before that of the previous frame.
        """
        config, statistics, draw = self.config, self.statistics, self._random.random
        statistics.frames += 1
        statistics.bytes += len(frame)
        start = max(time, self._idle_from)
        end = start + config.wire_time(len(frame))
        self._idle_from = end + config.duration(GAP_BYTES)
        arrival = self._last_delivery = max(end + self._delay_ps + self._host_time(), self._last_delivery)
        arrival_times, faults, corrupted = [arrival], 0, statistics.corrupted
        if draw() < config.drop or self.is_cut or (self.cut_at is not None and time >= self.cut_at):
            statistics.dropped += 1
            arrival_times, faults = [], LinkFaults.DROPPED
        elif draw() < config.reorder:
            statistics.reordered += 1
            arrival_times[0] += self._random.randint(0, self._late_ps)
            faults = LinkFaults.REORDERED
        if arrival_times and draw() < config.duplicate:
            statistics.duplicated += 1
            arrival_times.append(arrival + self._random.randint(0, self._late_ps))
            faults |= LinkFaults.DUPLICATED
        arrivals = [self._deliver(frame, time) for time in arrival_times]
        if self._log:
            self._log.write(self._port, self._up, start, end, frame, faults, statistics.corrupted - corrupted)
        return arrivals

    def _deliver(self, frame: bytes, time: int) -> Arrival:
        if self._random.random() >= self.config.corrupt:
            return Arrival(time, frame)
        self.statistics.corrupted += 1
        wire = bytearray(frame + zlib.crc32(frame).to_bytes(FCS_BYTES, "little"))
        for bit in self._random.sample(range(8 * len(wire)), self._random.randint(1, _MAX_FLIPPED_BITS)):
            wire[bit // 8] ^= 1 << bit % 8
        received, fcs = bytes(wire[:-FCS_BYTES]), int.from_bytes(wire[-FCS_BYTES:], "little")
        error = zlib.crc32(received) != fcs
        self.statistics.fcs_errors += error
        return Arrival(time, received, error)


def min_trip_ps(link: LinkConfig, switch_ns: float) -> int:
    """Return the shortest time in ps from a frame's departure to the arrival of an answer at another node."""
    return 2 * Link(link, "").min_latency + round(switch_ns * 1000)


@dataclass(frozen=True)
class Reception:
    """A frame that a node receives on ``port``."""

    port: int
    arrival: Arrival


class Forwarder(Protocol):
    """Interface of a network's centre: a :class:`Switch`, or a forwarder without aggregation."""

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Inject a frame without FCS; return the frames that it causes, as (port, frame, time), in order."""


class Network:
    """A switch with one link per port, and all frames in flight.

    - ``switch_ns``: delay of the switch.
    - ``seed``: seed of all links; each direction of each link has its own derived seed.
    - ``capture``: called as ``(frame, time)`` for every intact frame that the switch receives or sends, in
      order of time.
    - ``log``: receives all frames on links, lost ones too, in the order in which links accept them.
    - ``cuts``: time in ps by port from which both directions of its link drop every frame.

    Call ``send`` in order of time. ``advance`` lets the switch receive the frames that arrive up to a time, and
    returns the frames that nodes will receive in consequence.
    """

    def __init__(
        self,
        *,
        switch: Forwarder,
        ports: int,
        link: LinkConfig,
        switch_ns: float = 0.0,
        seed: int = 0,
        capture: Callable[[bytes, int], None] | None = None,
        log: Log | None = None,
        cuts: Mapping[int, int] | None = None,
    ):
        check_delay("switch_ns", switch_ns)
        self.switch = switch
        self._outside = switch if isinstance(switch, OutsideSwitch) else None
        self.up, self.down = (
            [
                Link(link, f"{seed} {direction} {port}", port=port, up=direction == "up", log=log)
                for port in range(ports)
            ]
            for direction in ("up", "down")
        )
        for port, time in (cuts or {}).items():
            self.up[port].cut_at = self.down[port].cut_at = time
        self.lookahead = min((link.min_latency for link in self.up), default=0)
        self.first_arrival: list[int | None] = [None] * ports  # per port, time of the switch's first reception
        self._waiting = [0] * ports  # per port, frames from an outside switch that the node has not taken
        self._severed: set[frozenset[int]] = set()  # pairs of ports between which all frames are dropped
        self._switch_delay = round(switch_ns * 1000)
        self._captures = [capture] if capture else []  # per switch
        self._order = itertools.count()  # breaks ties in time by the order of causes
        self._arriving: list[tuple[int, int, int, bytes]] = []  # heaps: time, order, port, frame
        self._captured: list[tuple[int, int, int, bytes]] = []  # heap: time, order, switch, frame

    @property
    def is_outside(self) -> bool:
        """Whether the switch is outside; the caller then reports ``note_given`` and ``note_taken``."""
        return self._outside is not None

    def note_given(self, port: int) -> None:
        """Note that a node gets a frame."""
        self._waiting[port] += 1

    def note_taken(self, port: int) -> None:
        """Note that a node has taken a frame."""
        self._waiting[port] -= 1

    @property
    def next_time(self) -> int | None:
        """Time in ps of the next arrival at the switch, or poll of an outside switch; None without either."""
        arrival = self._arriving[0][0] if self._arriving else None
        if not self._outside:
            return arrival
        poll_time = self._outside.next_poll
        return poll_time if arrival is None else min(arrival, poll_time)

    @property
    def carries(self) -> bool:
        """Whether a frame is in flight to the switch."""
        return bool(self._arriving)

    def send(self, port: int, frame: bytes, time: int) -> None:
        """Send a frame whose last byte has left node ``port``. The switch's MAC drops a corrupt frame."""
        for arrival in self.up[port].send(frame, time):
            if not arrival.error:
                heapq.heappush(self._arriving, (arrival.time, next(self._order), port, arrival.frame))

    def cut(self, port: int, peer: int | None = None) -> None:
        """Make both directions of a port's link drop every frame from now on; frames in flight arrive.

        With ``peer``, only frames between the two ports are lost; the switch drops them.
        """
        if peer is None:
            self.up[port].is_cut = self.down[port].is_cut = True
        else:
            self._severed.add(frozenset((port, peer)))

    def mend(self, port: int) -> None:
        """Make both directions of a port's cut link carry frames again."""
        self.up[port].is_cut = self.down[port].is_cut = False

    def advance(self, time: int) -> list[Reception]:
        """Let the switch receive all frames up to ``time``, inclusive; return the resulting receptions.

        A frame that leaves a node at t arrives at t + ``lookahead`` or later. A caller may therefore advance to
        that time (conservative lookahead). Answers leave the switch in the order of the frames that caused
        them, so their arrivals are final, though mostly later than ``time``.
        """
        received: list[Reception] = []
        while self._arriving and self._arriving[0][0] <= time:
            arrival_time, _, port, frame = heapq.heappop(self._arriving)
            for target, answer, send_time in self._inject(port, frame, arrival_time):
                if self._severed and frozenset((port, target)) in self._severed:
                    continue
                departure = send_time + self._switch_delay
                received += self._send_down(target, answer, departure)
        if self._outside:
            busy = {port for port, count in enumerate(self._waiting) if count >= MAX_WAITING}
            for target, frame, send_time in self._outside.poll(time, busy):
                received += self._send_down(target, frame, send_time)
        self._flush(time)
        return received

    def _inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Let the switch receive a frame; return the frames that it causes."""
        self._record(frame, time)
        if self.first_arrival[port] is None:
            self.first_arrival[port] = time
        return self.switch.inject(port, frame, time)

    def _send_down(self, port: int, frame: bytes, time: int) -> list[Reception]:
        """Send a frame from the switch at ``time``; return its receptions."""
        self._record(frame, time)
        return [Reception(port, arrival) for arrival in self.down[port].send(frame, time)]

    def close(self) -> None:
        """Complete the capture; discard frames in flight."""
        self._flush(None)

    def _record(self, frame: bytes, time: int, switch: int = 0) -> None:
        if self._captures:
            heapq.heappush(self._captured, (time, next(self._order), switch, frame))

    def _flush(self, time: int | None) -> None:
        while self._captured and (time is None or self._captured[0][0] <= time):
            at, _, switch, frame = heapq.heappop(self._captured)
            self._captures[switch](frame, at)

    def statistics(self) -> list[dict[str, dict[str, int]]]:
        """Return the counters of each port's link, by direction."""
        return [
            {"up": asdict(up.statistics), "down": asdict(down.statistics)}
            for up, down in zip(self.up, self.down, strict=True)
        ]
