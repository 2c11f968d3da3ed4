"""Around a link: a network that carries, loses, repeats, delays and spoils frames, and other nodes."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from amaranth import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from fanin.hdl.net.link.job import LinkCounters, difference_layout
from fanin.hdl.net.link.link import ReliableLink
from fanin.sim.rtl.stalls import Side, Stalls
from fanin.wire.fields import field_bits
from fanin.wire.link import LinkKind
from fanin.wire.ring import RING_LINK, RingFrame, decode_ring, encode_ring
from tests.hdl.aggregation.bench import beats_of

RING = 5
COUNTERS = list(LinkCounters.as_shape().members)
DIFFERENCES = list(difference_layout(RING_LINK).members)


def mac(node: int) -> int:
    """Address of a node."""
    return 0x02_00_00_00_03_00 + node


def job(node: int = 0, nodes: int = 2, **other: int) -> dict[str, int]:
    """Job of a node."""
    return {
        "job": RING,
        "nodes": nodes,
        "rank": node,
        "previous_rank": (node - 1) % nodes,
        "codec": 1,
        "parameters": 0x0A12,
        "own_mac": mac(node),
        "previous_mac": mac((node - 1) % nodes),
        "next_mac": mac((node + 1) % nodes),
        "timeout": 200,
        "retries": 1000,
        "ack_frames": 4,
        "ack_delay": 30,
    } | other


class Links(wiring.Component):
    """Links side by side, as ``link``, not connected."""

    def __init__(self, count: int, **parameters: Any):
        self.parts = [ReliableLink(form=RING_LINK, **parameters) for _ in range(count)]
        super().__init__({"link": Out(self.parts[0].signature).array(count)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for port, part in zip(self.link, self.parts, strict=True):
            m.submodules += part
            wiring.connect(m, part, wiring.flipped(port))
        return m


def payloads(rng: random.Random, lengths: Iterable[int], width: int) -> list[list[dict[str, int]]]:
    """Frames' payloads as beats for ``tx``."""
    frames = []
    for length in lengths:
        said = {name: rng.getrandbits(field_bits(RING_LINK.fields, name)) for name in RING_LINK.data}
        beats = [{"data": rng.getrandbits(width), "last": int(k == length - 1), **said} for k in range(length)]
        frames.append(beats)
    return frames


def as_frame(beats: list[dict[str, int]], sequence: int, width: int, **other: int) -> RingFrame:
    """The DATA frame that carries a payload."""
    said = {name: beats[0][name] for name in RING_LINK.data}
    data = b"".join(beat["data"].to_bytes(width // 8, "little") for beat in beats)
    return ring_frame(LinkKind.DATA, sequence=sequence, payload=data, **(said | other))


def ring_frame(kind: LinkKind, **other: Any) -> RingFrame:
    """A frame of the ring that :func:`job` describes."""
    return RingFrame(**({"kind": kind, "job": RING, "nodes": 2, "codec": 1, "parameters": 0x0A12} | other))


class Delivery(NamedTuple):
    """A frame that reaches a link ``delay`` cycles from now; ``error``: flagged by its MAC."""

    link: int
    frame: bytes
    delay: int = 1
    error: bool = False


class Sent(NamedTuple):
    """A frame that left a link: cycles of its first and last beat."""

    link: int
    first: int
    last: int
    frame: bytes


@dataclass
class Wires:
    """Carries frames from ``mac_tx`` of links to ``mac_rx`` of links, and remembers them.

    ``route(link, frame, cycle)`` says what becomes of a frame; ``at`` maps cycles to deliveries of others. A
    link starts at its cycle in ``start``; ``restart`` resets all, and starts them a cycle later. With
    ``pause`` the MAC waits so often between frames, with ``stall`` anywhere, and so does the arrival of beats.
    """

    dut: Links
    route: Callable[[int, bytes, int], Iterable[Delivery]]
    rng: random.Random
    start: list[int]
    pause: float = 0.0
    stall: float | dict[str, float] = 0.0
    restart: int = -2
    at: dict[int, list[Delivery]] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    arrived: list[tuple[int, int, bytes]] = field(default_factory=list)  # link, last beat, frame
    failed: dict[int, tuple[int, int]] = field(default_factory=dict)  # per link: cycle and cause
    differed: dict[int, set[str]] = field(default_factory=dict)  # per link: reasons of a mismatch
    idle: list[int] = field(default_factory=list)
    cycle: int = 0

    def __post_init__(self) -> None:
        count = len(self.dut.link)
        self.width = self.dut.parts[0].data_width
        self.stalls = Stalls(self.stall, self.rng.random())
        self.counts = [Counter() for _ in range(count)]
        self.order = itertools.count()
        self.pending: list[list[Any]] = [[] for _ in range(count)]
        self.feeding: list[list[Any]] = [[] for _ in range(count)]
        self.building = [b""] * count
        self.began = [0] * count
        self.idle = [1] * count

    async def process(self, ctx: Any) -> None:
        """The testbench process."""
        links = self.dut.link
        while True:
            for index, link in enumerate(links):
                ctx.set(link.reset, self.cycle == self.restart)
                ctx.set(link.start, self.cycle in (self.start[index], self.restart + 1))
                pauses = not self.building[index] and self.rng.random() < self.pause
                pauses |= self.stalls.pauses(f"mac_tx{index}", Side.SINK, self.cycle)
                ctx.set(link.mac_tx.ready, not pauses)
                self._feed(ctx, index, link.mac_rx)
            seen = await ctx.tick().sample(
                *(
                    signal
                    for link in links
                    for signal in (
                        link.mac_tx.valid & link.mac_tx.ready,
                        link.mac_tx.valid,
                        link.mac_tx.payload,
                        link.mac_rx.valid,
                        link.mac_rx.ready,
                        link.counters.as_value(),
                        link.status.as_value(),
                        link.differs.as_value() if hasattr(link, "differs") else Const(0),
                    )
                )
            )
            for index in range(len(links)):
                self._note(index, *seen[2 + 8 * index : 9 + 8 * index])
                differs = {name for bit, name in enumerate(DIFFERENCES) if seen[9 + 8 * index] >> bit & 1}
                self.differed.setdefault(index, set()).update(differs)
            for delivery in self.at.get(self.cycle, ()):
                self._deliver(delivery)
            self.cycle += 1

    def _deliver(self, delivery: Delivery) -> None:
        due = self.cycle + delivery.delay
        heapq.heappush(self.pending[delivery.link], (due, next(self.order), delivery))

    def _feed(self, ctx: Any, index: int, port: Any) -> None:
        feeding, pending = self.feeding[index], self.pending[index]
        if not feeding and pending and pending[0][0] <= self.cycle:
            delivery = heapq.heappop(pending)[2]
            beats = beats_of(delivery.frame, self.width, error=delivery.error)
            feeding += [(beat, delivery.frame) for beat in beats]
        pauses = self.stalls.pauses(f"mac_rx{index}", Side.SOURCE, self.cycle)
        valid = bool(feeding) and (ctx.get(port.valid) or not pauses)
        ctx.set(port.valid, valid)
        if valid:
            ctx.set(port.payload, feeding[0][0])

    def _note(
        self, index: int, moved: int, valid: int, beat: Any, fed: int, ready: int, counters: int, status: int
    ) -> None:
        assert valid or not self.building[index], "paused inside a frame"
        if moved:
            if not self.building[index]:
                self.began[index] = self.cycle
            assert beat.keep == (1 << self.width // 8) - 1
            self.building[index] += beat.data.to_bytes(self.width // 8, "little")
            if beat.last:
                frame, self.building[index] = self.building[index], b""
                self.sent.append(Sent(index, self.began[index], self.cycle, frame))
                for delivery in self.route(index, frame, self.cycle):
                    self._deliver(delivery)
        assert ready, "a MAC does not wait"
        if fed:
            beat, frame = self.feeding[index].pop(0)
            if beat["last"]:
                self.arrived.append((index, self.cycle, frame))
        for bit, name in enumerate(COUNTERS):
            self.counts[index][name] += counters >> bit & 1
        self.idle[index] = status >> 1 & 1
        if status >> 2 & 1 and index not in self.failed:
            self.failed[index] = (self.cycle, status >> 3)

    def kinds(self, link: int) -> list[LinkKind]:
        """What a link has sent."""
        return [decode_ring(s.frame, beat_bytes=self.width // 8).kind for s in self.sent if s.link == link]


def straight(link, frame, cycle):
    """A network that does nothing to a frame."""
    return [Delivery(1 - link, frame, delay=20)]


def faulty(rng, odds, wires, frames):
    """A network that loses, doubles, delays and spoils frames, each with probability ``odds``.

    Once all ``frames`` of each link have arrived it is good, so that the last acknowledgement comes through
    within a timeout.
    """

    def route(link, frame, cycle):
        if all(counts["received"] == frames for counts in wires.counts):
            yield from straight(link, frame, cycle)
            return
        if rng.random() < odds:
            return
        for _ in range(1 + (rng.random() < odds)):
            delay = 20 + (rng.randrange(100) if rng.random() < odds else 0)
            spoilt = rng.random() < odds
            flip = 1 << rng.randrange(8 * len(frame)) if spoilt else 0
            copy = (int.from_bytes(frame, "big") ^ flip).to_bytes(len(frame), "big")
            yield Delivery(1 - link, copy, delay=delay, error=spoilt)

    return route


def beats_as_dicts(log: list[tuple[int, Any]]) -> list[dict[str, int]]:
    """What a stream of beats has given."""
    return [{name: beat[name] for name in ("data", "last", *RING_LINK.data)} for _, beat in log]


def encoded(frame: RingFrame, width: int, *, source: int, destination: int) -> bytes:
    """The bytes of a frame between two nodes; its rank is ``source`` unless it has one."""
    frame = replace(frame, rank=frame.rank or source)
    return encode_ring(frame, beat_bytes=width // 8, source=mac(source), destination=mac(destination))
