"""Random traffic for a switch, and several switches side by side: every frame out and every register alike.

Frames are valid, duplicate, stale, foreign, truncated, malformed and corrupt ones of several jobs, and other
traffic. The switch is the only one of two jobs, and below the root in a third. What is out of contract
(docs/systems/aggregation.md, trees.md) is left out: a member that begins the next round before all have
acknowledged the last, an ACK ahead of its RESULT, an answer of the parent to what it was not sent.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fanin.job import SWITCH, Job, Member, Uplink, worker_endpoint
from fanin.sim.switch.base import Switch
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import ROUND_MAX, AggPacket, Encap, Kind, decode_payload, encode, header_length
from fanin.wire.ethernet import ETHERTYPE_IPV4, Endpoint, internet_checksum

PORTS = 6
# Two members share port 0; jobs 3 and 200 have ports in common.
JOBS = (
    Job(3, 8, 8, tuple(Member(port, 1 << w, worker_endpoint(w)) for w, port in enumerate((0, 0, 1, 2)))),
    Job(200, 4, 2, (Member(2, 1, Endpoint(0x02AB, 0x0B000001, 1111)), Member(4, 8, Endpoint(0x02AC, 9, 2)))),
    Job(
        77,
        16,
        4,
        (Member(1, 2, Endpoint(0x02AD, 11, 3)), Member(3, 4, Endpoint(0x02AE, 12, 4))),
        Uplink(5, 16, Endpoint(0x02AF, 13, 5)),
    ),
)


@dataclass
class Traffic:
    """Frames for a switch that runs ``JOBS``; ``reference`` says what is within the contract."""

    reference: ReferenceSwitch
    rng: random.Random
    encap: Encap
    shortest: int = 0  # bytes of a frame

    def frames(self, number: int) -> Iterator[tuple[int, bytes]]:
        """``number`` frames, each with the port that it arrives at."""
        kinds = [
            self._next,
            self._answer,
            self._again,
            self._stale,
            self._foreign,
            self._malformed,
            self._corrupt,
            self._other,
        ]
        while number:
            (make,) = self.rng.choices(kinds, (50, 15, 15, 8, 8, 6, 8, 5))
            port, frame = make()
            if len(frame) >= self.shortest and self._in_contract(frame):
                yield port, frame
                number -= 1

    def _packet(self, member: Member | Uplink, packet: AggPacket) -> tuple[int, bytes]:
        switch = Endpoint(self.rng.getrandbits(48), SWITCH.ip)  # it does not look at the destination MAC
        frame = encode(packet, encap=self.encap, source=member.endpoint, destination=switch)
        extra = self.rng.choice((b"", b"", b"", self.rng.randbytes(self.rng.randrange(40))))
        return member.port, frame + extra

    def _slot(self) -> tuple[Job, int]:
        job = self.rng.choice(JOBS)
        return job, self.rng.randrange(job.slots)

    def _make(self, job: Job, index: int, kind: int, number: int, bitmap: int) -> AggPacket:
        big = self.rng.random() < 0.2
        values = [
            self.rng.getrandbits(32) - 2**31 if big else self.rng.randrange(-9, 9) for _ in range(self.values)
        ]
        return AggPacket(kind, job.id, job.base + index, number, bitmap, tuple(values))

    @property
    def values(self) -> int:
        return self.reference.values

    def _next(self) -> tuple[int, bytes]:
        """What a member would send next."""
        job, index = self._slot()
        state = self.reference.registers(job.id, index)
        kind, number, seen = Kind.AGG, state.round, state.seen
        if number == 0 or seen == job.bitmap:
            kind, number, seen = Kind.ACK, state.round, state.ack_seen if state.ack_round == state.round else 0
            if number == 0 or seen == job.bitmap or not self.reference.protocol.acknowledges:
                kind, number, seen = Kind.AGG, min(state.round + 1, ROUND_MAX), 0
        member = self.rng.choice([m for m in job.members if not m.bitmap & seen] or job.members)
        return self._packet(member, self._make(job, index, kind, number, member.bitmap))

    def _answer(self) -> tuple[int, bytes]:
        """What the parent would send, once or again, or for a round that is over."""
        job = self.rng.choice([job for job in JOBS if job.uplink])
        index = self.rng.randrange(job.slots)
        state, parent = self.reference.registers(job.id, index), self.rng.choice((1, 3, 0xFFFF_FFFF))
        late = self.rng.random() < 0.1
        kind, number = Kind.RESULT, state.round
        if state.total and self.reference.protocol.acknowledges and self.rng.random() < 0.8:
            kind = Kind.CONFIRM
        number = number - late & 0xFFFF_FFFF
        own = job.uplink.bitmap if self.rng.random() < 0.95 else 0
        return self._packet(job.uplink, self._make(job, index, kind, max(number, 1), parent & ~16 | own))

    def _again(self) -> tuple[int, bytes]:
        job, index = self._slot()
        state, member = self.reference.registers(job.id, index), self.rng.choice(job.members)
        kind, number = self.rng.choice(((Kind.AGG, state.round), (Kind.ACK, state.ack_round)))
        return self._packet(member, self._make(job, index, kind, max(number, 1), member.bitmap))

    def _stale(self) -> tuple[int, bytes]:
        job, index = self._slot()
        state, member = self.reference.registers(job.id, index), self.rng.choice(job.members)
        number = self.rng.choice((state.round - 1, state.round + 2, state.round + 7, self.rng.getrandbits(32)))
        kind = self.rng.choice((Kind.AGG, Kind.ACK))
        return self._packet(member, self._make(job, index, kind, number & 0xFFFF_FFFF, member.bitmap))

    def _foreign(self) -> tuple[int, bytes]:
        job, index = self._slot()
        member = self.rng.choice(job.members)
        changes = self.rng.choice(
            (
                {"job": self.rng.getrandbits(8)},
                {"slot": self.rng.getrandbits(16)},
                {"slot": job.base + job.slots},
                {"bitmap": 1 << self.rng.randrange(32)},
                {"bitmap": self.rng.getrandbits(32)},
            )
        )
        number = self.reference.registers(job.id, index).round
        packet = self._make(job, index, self.rng.choice((0, 1, 2, 3)), max(number, 1), member.bitmap)
        port, frame = self._packet(member, replace(packet, **changes))
        return self.rng.choice((port, self.rng.randrange(PORTS))), frame

    def _malformed(self) -> tuple[int, bytes]:
        job, index = self._slot()
        member = self.rng.choice(job.members)
        changes = self.rng.choice(
            ({"version": self.rng.getrandbits(4)}, {"round": 0}, {"kind": self.rng.getrandbits(4)})
        )
        packet = self._make(job, index, Kind.AGG, 1, member.bitmap)
        port, frame = self._packet(member, replace(packet, **changes))
        return port, frame[: self.rng.choice((len(frame), self.rng.randrange(len(frame) + 1)))]

    def _corrupt(self) -> tuple[int, bytes]:
        """One to three bits are wrong; over IPv4 the checksum may have been made right again."""
        port, frame = self._next()
        data = bytearray(frame)
        for bit in self.rng.sample(range(8 * min(len(data), 60)), self.rng.randint(1, 3)):
            data[bit // 8] ^= 1 << bit % 8
        if data[12:14] == ETHERTYPE_IPV4.to_bytes(2, "big") and self.rng.random() < 0.5:
            data[24:26] = bytes(2)
            data[24:26] = internet_checksum(bytes(data[14:34])).to_bytes(2, "big")
        return port, bytes(data)

    def _other(self) -> tuple[int, bytes]:
        """Frames for members, for nobody known and for everybody, of other types, in either encapsulation."""
        _, frame = self._next()
        macs = [m.endpoint.mac for job in JOBS for m in job.members]
        mac = self.rng.choice((*macs, SWITCH.mac, 0xFFFF_FFFF_FFFF, 0x0100_5E00_0001))
        ethertype = self.rng.choice((b"\x08\x00", b"\x08\x06", b"\x86\xdd", self.rng.randbytes(2)))
        if self.rng.random() < 0.3:
            frame = frame[:12] + ethertype + frame[14:]
        else:
            end = Endpoint(mac, self.rng.getrandbits(32), self.rng.choice((53, 34997)))
            packet = AggPacket(Kind.AGG, 3, 8, 1, 1, (0,) * self.values)
            other = Encap.UDP if self.encap is Encap.L2 else Encap.L2
            encap = other if self.rng.random() < 0.3 else Encap.UDP
            frame = encode(packet, encap=encap, source=worker_endpoint(0), destination=end)
        return self.rng.randrange(PORTS), mac.to_bytes(6, "big") + frame[6 : self.rng.randint(20, len(frame))]

    def _in_contract(self, frame: bytes) -> bool:
        """False when the switch may take it for what no member sends."""
        for offset in {header_length(self.encap), header_length(Encap.L2)}:
            try:
                packet = decode_payload(frame[offset:], self.values)
            except ValueError:
                continue
            for job in (job for job in JOBS if job.id == packet.job):
                index = packet.slot - job.base
                if 0 <= index < job.slots and not self._may_follow(job, index, packet):
                    return False
        return True

    def _may_follow(self, job: Job, index: int, packet: AggPacket) -> bool:
        if not self.reference.protocol.acknowledges:
            state = self.reference.registers(job.id, index)
            return packet.kind != Kind.RESULT or packet.round != state.round or state.seen == job.bitmap
        state = self.reference.registers(job.id, index)
        added = state.seen == job.bitmap
        if packet.kind == Kind.RESULT:
            return packet.round != state.round or added
        acknowledged = state.ack_round == state.round and state.ack_seen == job.bitmap
        if packet.kind == Kind.CONFIRM:
            return packet.round != state.round or acknowledged
        if packet.kind == Kind.ACK:
            summed = added and (state.total or not job.uplink)
            return packet.round != state.round + 1 and (packet.round != state.round or summed)
        finished = acknowledged and (state.confirmed or not job.uplink)
        return packet.round != state.round + 1 or state.round == 0 or finished


def compare(
    switches: dict[str, Switch],
    encap: Encap,
    number: int,
    seed: int,
    *,
    shortest: int = 0,
    **reference: object,
) -> dict[str, int]:
    """Drive ``switches`` and the reference with ``number`` frames; AssertionError at the first difference.

    Registers are compared where a frame may have changed them, all at the end; so are all counters. Returns the
    reference's counters, to show what kinds of frames there were.
    """
    judge = ReferenceSwitch(endpoint=SWITCH, ports=PORTS, encap=encap, **reference)
    for switch in (judge, *switches.values()):
        for job in JOBS:
            switch.add_job(job)
    traffic = Traffic(judge, random.Random(seed), encap, shortest)
    for count, (port, frame) in enumerate(traffic.frames(number)):
        expected = judge.inject(port, frame, 0)
        for name, switch in switches.items():
            out = switch.inject(port, frame, 0)
            assert sorted(out) == sorted(expected), (
                f"frame {count} at port {port}: {frame.hex()}: {name} differs"
            )
    places = [(job.id, index) for job in JOBS for index in range(job.slots)]
    for name, switch in switches.items():
        for place in places:
            assert switch.registers(*place) == judge.registers(*place), f"registers of {place} differ in {name}"
        for job in JOBS:
            assert switch.job_counters(job.id) == judge.job_counters(job.id), name
        assert switch.counters() == judge.counters(), name
    totals = judge.counters().as_dict()
    for job in JOBS:
        counted = judge.job_counters(job.id).as_dict()
        if not job.uplink:
            assert not counted.pop("to_parent")
            assert not counted.pop("to_parent_again")
        totals |= {f"{job.id} {key}": value for key, value in counted.items()}
    return totals
