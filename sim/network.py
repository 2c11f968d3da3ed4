"""The network between nodes and switch: links with delay, bandwidth and faults, in simulated time.

Time is an integer number of picoseconds. A frame is handed to a link when its last byte has left the node (or
the switch); it occupies the link for preamble, frame, FCS and inter-frame gap, and has arrived when the last
bit of its FCS has, ``delay`` later. These numbers and the seed alone decide what happens.
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
from fanin.sim.switch.base import Delivery, OutsideSwitch, Switch, SwitchKind
from fanin.wire.ethernet import FCS_BYTES, GAP_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

_BURST_BITS = 8  # a corrupted frame has 1 to this many bits flipped


MAX_DELAY_NS = 1e9
MAX_TIMEOUT_NS = 1e13  # more than a node counts to at any clock
MIN_GBPS = 1e-3
SWITCH_NS = 400.0  # from a frame's last bit at the switch to its answer's first one, unless given
SLOWDOWN = 1000.0  # seconds of the wall clock in a simulated one, unless given, beside what is outside
PORTS_TIMEOUT_NS = 1e5  # NetworkConfig.timeout_ns at Linux interfaces: 0.1 s of the wall clock by default
BOARDS_TIMEOUT_NS = 2e6  # NetworkConfig.timeout_ns for boards: a host's switch takes longer than a real one
MAX_FRAME_BYTES = 9216
FAULTS = ("drop", "duplicate", "reorder", "corrupt")  # of LinkConfig
HOST = ("host_ns", "host_jitter_ns", "frame_bytes")  # of LinkConfig


def check_delay(name: str, value: float) -> None:
    """Raise ValueError, with the name of an option or a field, for a delay out of range."""
    if not 0 <= value <= MAX_DELAY_NS:
        raise ValueError(f"{name} must be in [0, {MAX_DELAY_NS:g}], not {value!r}")


@dataclass(frozen=True)
class LinkConfig:
    """A link, both directions alike.

    ``delay_ns`` is propagation, ``gbps`` the rate (infinite: frames take no time). ``drop``, ``duplicate``,
    ``reorder`` and ``corrupt`` are probabilities per frame; a reordered or duplicated copy comes up to
    ``late_ns`` later than it should, so that later frames overtake it.

    A node's data may be in a host's memory, not in the NIC: software then takes ``host_ns`` for each frame,
    each way, and at random longer, by an exponential distribution whose mean is ``host_jitter_ns``; frames stay
    in order. A frame takes as long on the wire as one of ``frame_bytes`` at least. No bit of it changes.
    """

    delay_ns: float = 100.0
    gbps: float = 100.0
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    late_ns: float = 2000.0
    host_ns: float = 0.0
    host_jitter_ns: float = 0.0
    frame_bytes: int = MIN_FRAME_BYTES

    def __post_init__(self) -> None:
        for name in FAULTS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, not {getattr(self, name)!r}")
        for name in ("delay_ns", "late_ns", "host_ns", "host_jitter_ns"):
            check_delay(name, getattr(self, name))
        if not MIN_FRAME_BYTES <= self.frame_bytes <= MAX_FRAME_BYTES:
            limits = f"[{MIN_FRAME_BYTES}, {MAX_FRAME_BYTES}]"
            raise ValueError(f"frame_bytes must be in {limits}, not {self.frame_bytes!r}")
        if not self.gbps >= MIN_GBPS:
            raise ValueError(f"gbps must be at least {MIN_GBPS:g}, not {self.gbps!r}")

    def duration(self, size: int) -> int:
        """Time of ``size`` bytes on the wire, in ps."""
        return round(size * 8000 / self.gbps)

    def wire_time(self, size: int) -> int:
        """Time in ps from a frame's first bit to the last one of its FCS; ``size``: without FCS, unpadded."""
        return self.duration(PREAMBLE_BYTES + max(size, self.frame_bytes) + FCS_BYTES)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network between the nodes, and when they send again.

    With ``ports``, names of Linux interfaces, one for each node, the switch is outside, and a second of
    simulated time takes ``slowdown`` seconds at least. These may be some of the workers' alone, ``here``.
    """

    link: LinkConfig = field(default_factory=LinkConfig)
    switch_ns: float = SWITCH_NS
    timeout_ns: float = 10_000.0  #: until a packet is sent again
    retries: int = 1000  #: of a packet, at most MAX_RETRIES; then its node stops
    slots: int | None = None  #: of the job; all that a node has unless given
    seed: int = 0
    switch: SwitchKind = SwitchKind.EMBEDDED
    make_switch: Callable[[int], Switch] | None = None  #: another switch: number of ports → switch; picklable
    ports: tuple[str, ...] = ()
    here: tuple[int, ...] = ()  #: the workers whose nodes are simulated; all unless given
    slowdown: float = SLOWDOWN
    #: workers and the simulated seconds after which their links drop every frame
    stops: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        check_delay("switch_ns", self.switch_ns)
        if not 0 < self.timeout_ns <= MAX_TIMEOUT_NS:
            raise ValueError(f"timeout_ns must be in (0, {MAX_TIMEOUT_NS:g}], not {self.timeout_ns!r}")
        if self.retries not in range(MAX_RETRIES + 1):
            raise ValueError(f"retries must be in 0…{MAX_RETRIES}, not {self.retries!r}")
        if self.here and len(self.here) != len(self.ports):
            raise ValueError(f"here must be a worker for each of ports, {len(self.ports)}, not {self.here}")


@dataclass
class LinkStatistics:
    """What one direction of a link did with its frames."""

    frames: int = 0  # handed in
    bytes: int = 0  # of these, without FCS
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    fcs_errors: int = 0  # corrupted copies that the receiver's FCS check caught


@dataclass(frozen=True)
class Arrival:
    """A frame at the end of a link: when, its bytes, and whether its FCS is wrong."""

    time: int
    frame: bytes
    error: bool = False


class Fate(IntFlag):
    """What a link did to a frame; what it corrupted are copies, and counted apart."""

    DROPPED = 1
    REORDERED = 2
    DUPLICATED = 4


class Log(Protocol):
    """Is told what links carry, as each of them takes a frame: :class:`fanin.sim.link_log.LinkLogWriter`."""

    def write(self, port: int, up: bool, begin: int, end: int, frame: bytes, fate: int, corrupted: int) -> None:
        """A frame on the link of ``port``, ``up`` to the switch or down from it.

        ``begin``: the first bit of its preamble is on the wire; ``end``: the last one of its FCS.
        """


class Link:
    """One direction of a link: a FIFO at the link's rate, then the delay and its faults, seeded.

    ``log`` gets every frame; for it the link is called ``port`` and ``up``.
    """

    def __init__(
        self, config: LinkConfig, seed: str, *, port: int = 0, up: bool = True, log: Log | None = None
    ):
        self.config = config
        self._port, self._up, self._log = port, up, log
        self.statistics = LinkStatistics()
        self.cut = False  # if so, every frame is dropped
        self.cut_at: int | None = None  # from this time on, in ps, every frame is dropped
        self._random = random.Random(seed)
        self._free = 0  # when the sender's wire is idle again
        self._delay_ps = round(config.delay_ns * 1000)
        self._late_ps = round(config.late_ns * 1000)
        self._host_ps = round(config.host_ns * 1000)
        self._handed = 0  # when the host's software was through with the last frame
        self.least_latency = config.wire_time(0) + self._delay_ps + self._host_ps

    def _host(self) -> int:
        """What the host's software takes for a frame, in ps."""
        mean = self.config.host_jitter_ns
        return self._host_ps + (round(1000 * self._random.expovariate(1 / mean)) if mean else 0)

    def send(self, frame: bytes, time: int) -> list[Arrival]:
        """Send a frame at ``time``, not before the previous one's. Returns its arrivals: none, one or two."""
        config, statistics, draw = self.config, self.statistics, self._random.random
        statistics.frames += 1
        statistics.bytes += len(frame)
        start = max(time, self._free)
        end = start + config.wire_time(len(frame))
        self._free = end + config.duration(GAP_BYTES)
        arrival = self._handed = max(end + self._delay_ps + self._host(), self._handed)
        times, fate, corrupted = [arrival], 0, statistics.corrupted
        if draw() < config.drop or self.cut or (self.cut_at is not None and time >= self.cut_at):
            statistics.dropped += 1
            times, fate = [], Fate.DROPPED
        elif draw() < config.reorder:
            statistics.reordered += 1
            times[0] += self._random.randint(0, self._late_ps)
            fate = Fate.REORDERED
        if times and draw() < config.duplicate:
            statistics.duplicated += 1
            times.append(arrival + self._random.randint(0, self._late_ps))
            fate |= Fate.DUPLICATED
        arrivals = [self._deliver(frame, t) for t in times]
        if self._log:
            self._log.write(self._port, self._up, start, end, frame, fate, statistics.corrupted - corrupted)
        return arrivals

    def _deliver(self, frame: bytes, time: int) -> Arrival:
        if self._random.random() >= self.config.corrupt:
            return Arrival(time, frame)
        self.statistics.corrupted += 1
        wire = bytearray(frame + zlib.crc32(frame).to_bytes(FCS_BYTES, "little"))
        for bit in self._random.sample(range(8 * len(wire)), self._random.randint(1, _BURST_BITS)):
            wire[bit // 8] ^= 1 << bit % 8
        received, fcs = bytes(wire[:-FCS_BYTES]), int.from_bytes(wire[-FCS_BYTES:], "little")
        error = zlib.crc32(received) != fcs
        self.statistics.fcs_errors += error
        return Arrival(time, received, error)


def least_trip(link: LinkConfig, switch_ns: float) -> int:
    """From when a frame leaves a node, the least time in ps until one that it causes arrives at another."""
    return 2 * Link(link, "").least_latency + round(switch_ns * 1000)


@dataclass(frozen=True)
class Reception:
    """A frame that a node receives: ``time`` is when the last bit of its FCS has arrived."""

    port: int
    arrival: Arrival


class Forwarder(Protocol):
    """What may stand in the middle of a network: every :class:`Switch`, and one that only forwards."""

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Hand in a frame without FCS; what it causes, as (port, frame, time), in order."""


class Network:
    """A switch with one link per port, and all frames in flight.

    ``seed`` seeds each direction of each link by its own; ``capture`` gets every intact frame at the switch,
    as ``(frame, time)``, received or sent, in order of time; ``log`` gets all that links carry, lost frames
    too, in the order in which they take them. Frames go in by ``send``, in order of time;
    ``advance`` lets the switch receive what arrives up to a time and returns what nodes will receive of that.
    ``cuts`` has, by port, the time in ps from which both directions of its link drop every frame.
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
            [Link(link, f"{seed} {way} {port}", port=port, up=way == "up", log=log) for port in range(ports)]
            for way in ("up", "down")
        )
        for port, time in (cuts or {}).items():
            self.up[port].cut_at = self.down[port].cut_at = time
        self.lookahead = min((link.least_latency for link in self.up), default=0)
        self.first_arrival: list[int | None] = [None] * ports  # per port, when the switch received from it
        self._severed: set[frozenset[int]] = set()  # pairs of ports between which nothing passes any more
        self._switch_delay = round(switch_ns * 1000)
        self._capture = capture
        self._order = itertools.count()  # what happens at the same time happens in the order of its causes
        self._arriving: list[tuple[int, int, int, bytes]] = []  # heaps: time, order, port, frame
        self._captured: list[tuple[int, int, bytes]] = []

    @property
    def next_time(self) -> int | None:
        """When the switch has something to do; None when no frame is in flight to it, nor comes by itself."""
        arrival = self._arriving[0][0] if self._arriving else None
        if not self._outside:
            return arrival
        look = self._outside.next_look
        return look if arrival is None else min(arrival, look)

    @property
    def carries(self) -> bool:
        """Whether a frame is in flight to the switch."""
        return bool(self._arriving)

    def send(self, port: int, frame: bytes, time: int) -> None:
        """The last byte of a frame has left node ``port``. A corrupt one ends at the switch's MAC."""
        for arrival in self.up[port].send(frame, time):
            if not arrival.error:
                heapq.heappush(self._arriving, (arrival.time, next(self._order), port, arrival.frame))

    def cut(self, port: int, peer: int | None = None) -> None:
        """From now on a node's links drop every frame; those in flight arrive.

        With ``peer``, those between the two are lost, and no others: at the switch, behind their way to it.
        """
        if peer is None:
            self.up[port].cut = self.down[port].cut = True
        else:
            self._severed.add(frozenset((port, peer)))

    def mend(self, port: int) -> None:
        """From now on a node's links carry frames again."""
        self.up[port].cut = self.down[port].cut = False

    def advance(self, time: int) -> list[Reception]:
        """Let the switch receive everything up to and including ``time``; what nodes will receive of it.

        A frame that leaves a node at t arrives at t + ``lookahead`` or later: up to there a caller may advance
        (conservative lookahead). Answers leave the switch in the order of the frames that caused them, so their
        arrivals, though mostly later than ``time``, are certain now.
        """
        received: list[Reception] = []
        while self._arriving and self._arriving[0][0] <= time:
            now, _, port, frame = heapq.heappop(self._arriving)
            self._record(frame, now)
            if self.first_arrival[port] is None:
                self.first_arrival[port] = now
            for out, answer, at in self.switch.inject(port, frame, now):
                if self._severed and frozenset((port, out)) in self._severed:
                    continue
                leaves = at + self._switch_delay
                received += self._leaves(out, answer, leaves)
        if self._outside:
            for out, frame, at in self._outside.look(time):
                received += self._leaves(out, frame, at)
        self._flush(time)
        return received

    def _leaves(self, port: int, frame: bytes, time: int) -> list[Reception]:
        """A frame leaves the switch."""
        self._record(frame, time)
        return [Reception(port, arrival) for arrival in self.down[port].send(frame, time)]

    def close(self) -> None:
        """End the run: the capture is completed, frames in flight are discarded."""
        self._flush(None)

    def _record(self, frame: bytes, time: int) -> None:
        if self._capture:
            heapq.heappush(self._captured, (time, next(self._order), frame))

    def _flush(self, time: int | None) -> None:
        while self._capture and self._captured and (time is None or self._captured[0][0] <= time):
            at, _, frame = heapq.heappop(self._captured)
            self._capture(frame, at)

    def statistics(self) -> list[dict[str, dict[str, int]]]:
        """Per port, what each direction of its link did."""
        return [
            {"up": asdict(up.statistics), "down": asdict(down.statistics)}
            for up, down in zip(self.up, self.down, strict=True)
        ]
