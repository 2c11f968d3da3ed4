"""A worker's surroundings: a wire that carries frames, a switch, other workers, and links that lose packets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fanin.golden.aggregation import WorkerEndpoint
from fanin.sim.rtl.stalls import Side, Stalls
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Protocol, decode_payload, encode, header_length
from fanin.wire.ethernet import Endpoint

SWITCH = Endpoint(mac=0x02_00_00_00_00_FE, ip=0x0A_00_00_FE)
JOB = 7
BASE = 64


def own(worker: int = 0) -> Endpoint:
    """Addresses of a worker."""
    return Endpoint(mac=0x02_00_00_00_01_00 + worker, ip=0x0A_00_00_01 + worker)


def config(*, log2_slots: int, timeout: int = 1000, retries: int = 1000, **other: int) -> dict[str, int]:
    """JobConfig of worker 0."""
    return {
        "enable": 1,
        "job": JOB,
        "base": BASE,
        "log2_slots": log2_slots,
        "member": 1,
        "timeout": timeout,
        "retries": retries,
        "own_mac": own().mac,
        "own_ip": own().ip,
        "switch_mac": SWITCH.mac,
        "switch_ip": SWITCH.ip,
        "udp_port": own().port,
    } | other


def to_worker(packet: AggPacket, *, encap: Encap = Encap.L2) -> bytes:
    """A frame from the switch to worker 0."""
    return encode(packet, encap=encap, source=SWITCH, destination=own())


def packet_of(frame: bytes, *, encap: Encap = Encap.L2, values: int = 8) -> AggPacket:
    """The aggregation packet in a frame."""
    return decode_payload(frame[header_length(encap) :], values)


def beats_of(frame: bytes, width: int, *, error: bool = False) -> list[dict[str, int]]:
    """A frame as packet stream payloads; an empty frame is one beat that keeps nothing."""
    size = width // 8
    beats = []
    for at in range(0, max(len(frame), 1), size):
        part = frame[at : at + size]
        last = at + size >= len(frame)
        keep = (1 << len(part)) - 1
        data = int.from_bytes(part, "little")
        beats.append({"data": data, "keep": keep, "last": int(last), "error": int(error and last)})
    return beats


@dataclass
class Wire:
    """Carries frames out of ``tx`` and into ``rx`` of a component, and remembers when.

    ``exchange(frames, cycle)`` gets the frames that left in this cycle (one at most) and returns those that
    arrive from now on, each as bytes or ``(bytes, error)``.
    """

    dut: Any
    exchange: Callable[[list[bytes], int], list[Any]]
    rng: random.Random
    stall: float = 0.0
    sent: list[tuple[int, int, bytes]] = field(default_factory=list)  # first beat, last beat, frame
    arrived: list[tuple[int, bytes]] = field(default_factory=list)  # last beat, frame
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, ctx: Any) -> None:
        """The testbench process; counts the counters' pulses, too."""
        dut, width = self.dut, len(self.dut.tx.payload.data)
        stalls = Stalls(self.stall, self.rng.random())
        cycle, first, building, pausing = 0, 0, b"", False
        queue: list[tuple[dict[str, int], bytes | None]] = []
        while True:
            ctx.set(dut.tx.ready, not stalls.pauses("tx", Side.SINK, cycle))
            ctx.set(dut.rx.valid, bool(queue))
            if queue:
                ctx.set(dut.rx.payload, queue[0][0])
            _, _, valid, ready, beat, rx_ready, counters = await ctx.tick().sample(
                dut.tx.valid, dut.tx.ready, dut.tx.payload, dut.rx.ready, dut.counters
            )
            assert rx_ready, "a MAC does not wait"
            assert valid or not pausing, "paused inside a frame"
            left = []
            if valid and ready:
                first = first if building else cycle
                building += beat.data.to_bytes(width // 8, "little")[: beat.keep.bit_count()]
                if beat.last:
                    left = [building]
                    self.sent.append((first, cycle, building))
                    building = b""
                pausing = not beat.last
            if queue and (frame := queue.pop(0)[1]) is not None:
                self.arrived.append((cycle, frame))
            self._count(counters)
            for item in self.exchange(left, cycle):
                frame, error = item if isinstance(item, tuple) else (item, False)
                beats = beats_of(frame, width, error=error)
                queue += [(b, frame if b is beats[-1] else None) for b in beats]
            cycle += 1

    def _count(self, counters: Any) -> None:
        value = counters.as_bits()
        if not value:
            return
        for name in counters.shape().members:
            if name != "faults":
                self.counts[name] = self.counts.get(name, 0) + counters[name]
        for name in counters.faults.shape().members:
            self.counts[name] = self.counts.get(name, 0) + counters.faults[name]


@dataclass(frozen=True)
class Odds:
    """What a link does to a packet, as probabilities; a late packet overtakes nothing and is overtaken."""

    loss: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    corrupt: float = 0.0


class Network:
    """Links, the reference switch, and workers 1… in Python; worker 0 is the component under test.

    ``pas[w]`` are the PAs of worker w. Times are cycles.
    """

    def __init__(
        self,
        *,
        pas: list[list[tuple[int, ...]]],
        slots: int,
        rng: random.Random,
        odds: Odds | None = None,
        encap: Encap = Encap.L2,
        values: int = 8,
        delay: tuple[int, int] = (5, 30),
        timeout: int = 400,
        protocol: Protocol = Protocol.P4SGD,
    ):
        self.rng, self.odds, self.encap, self.values = rng, odds or Odds(), encap, values
        self.delay, self.timeout = delay, timeout
        common: dict[str, Any] = {"values": values, "protocol": protocol}
        self.switch = ReferenceSwitch(endpoint=SWITCH, ports=len(pas), **common)
        members = tuple(Member(w, 1 << w, own(w)) for w in range(len(pas)))
        self.switch.add_job(Job(JOB, BASE, slots, members))
        self.pas = {w: list(p) for w, p in enumerate(pas) if w}
        self.workers = {
            w: WorkerEndpoint(job=JOB, base=BASE, slots=slots, member=1 << w, **common) for w in self.pas
        }
        self.delivered: dict[int, list[tuple[int, ...]]] = {w: [] for w in self.workers}
        self.deadlines: dict[tuple[int, int], int] = {}
        self.events: list[tuple[int, int, str, int, Any]] = []
        self.dead = False
        self._serial = 0

    def exchange(self, frames: list[bytes], now: int) -> list[tuple[bytes, bool]]:
        """For Wire: frames of worker 0 in, frames for worker 0 out."""
        for frame in frames:
            self._carry("switch", 0, frame, now)
        for w, endpoint in self.workers.items():
            while self.pas[w] and endpoint.can_submit():
                self._send(w, endpoint.submit(self.pas[w].pop(0)), now)
        for (w, index), when in list(self.deadlines.items()):
            if when <= now:
                self._send(w, self.workers[w].timeout(index), now)
                if self.deadlines[w, index] <= now:
                    del self.deadlines[w, index]
        out: list[tuple[bytes, bool]] = []
        while self.events and self.events[0][0] <= now:
            _, _, place, port, (frame, error) = heapq.heappop(self.events)
            if place == "worker" and port == 0:
                out.append((frame, error))
            elif error:
                continue  # its FCS is wrong
            elif place == "worker":
                self._at_worker(port, frame, now)
            elif not self.dead:
                for to, answer, _ in self.switch.inject(port, frame, now):
                    self._carry("worker", to, answer, now)
        return out

    def _carry(self, place: str, port: int, frame: bytes, now: int) -> None:
        """One link: lose, duplicate, delay, corrupt."""
        rng, odds = self.rng, self.odds
        if rng.random() < odds.loss:
            return
        for _ in range(2 if rng.random() < odds.duplicate else 1):
            when = now + rng.randint(*self.delay) + (60 if rng.random() < odds.late else 0)
            corrupt = rng.random() < odds.corrupt
            data = bytearray(frame)
            if corrupt:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            self._serial += 1
            heapq.heappush(self.events, (when, self._serial, place, port, (bytes(data), corrupt)))

    def _at_worker(self, worker: int, frame: bytes, now: int) -> None:
        packet = packet_of(frame, encap=self.encap, values=self.values)
        received = self.workers[worker].receive(packet)
        self.delivered[worker] += received.delivered
        self._send(worker, list(received.packets), now)

    def _send(self, worker: int, packets: list[AggPacket], now: int) -> None:
        for packet in packets:
            self.deadlines[worker, packet.slot - BASE] = now + self.timeout
            frame = encode(packet, encap=self.encap, source=own(worker), destination=SWITCH)
            self._carry("switch", worker, frame, now)
