"""The reference switch: docs/systems/aggregation.md and trees.md in plain Python, to be read beside them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fanin.job import Station, Uplink, check_jobs
from fanin.sim.switch.base import Delivery, Job, JobCounters, Member, SlotRegisters, Switch, SwitchCounters
from fanin.wire.aggregation import (
    AGGREGATION,
    DEFAULT_VALUES,
    ETHERTYPE_AGGREGATION,
    VERSION,
    Encap,
    Kind,
    Protocol,
    header_length,
    payload_length,
)
from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    UDP_PORT,
    Endpoint,
    internet_checksum,
)
from fanin.wire.fields import byte_length

_IP = byte_length(ETHERNET)  # offset of the IPv4 header
_UDP = _IP + byte_length(IPV4)
_HEADER = struct.Struct(">BBHII")  # kind and version, job, slot, round, bitmap
assert _HEADER.size == byte_length(AGGREGATION)
assert _UDP + byte_length(UDP) == header_length(Encap.UDP)
# Fields of fanin.wire.ethernet.IPV4; version and ihl are one byte, flags and fragment one 16-bit number.
_IP_HEADER = struct.Struct(">BBHHHBBHII")
_MORE_OR_OFFSET = 0x3FFF  # bits of the flags and fragment field that are 0 in a whole datagram


@dataclass
class _Round:
    """One half of a slot's state: the current round and the members seen in it.

    - ``answered``: below the root: whether the parent has answered this round.
    """

    number: int = 0
    seen: int = 0
    sums: list[int] = field(default_factory=list)
    answered: bool = False

    def accept(self, number: int, bitmap: int) -> str:
        """Return ``new``, ``duplicate`` or ``stale`` for a packet of round ``number`` from member ``bitmap``.

        A new packet is noted; the next round's first packet replaces this round.
        """
        if number == self.number + 1:
            self.number, self.seen, self.sums, self.answered = number, bitmap, [], False
            return "new"
        if number != self.number:
            return "stale"
        if self.seen & bitmap:
            return "duplicate"
        self.seen |= bitmap
        return "new"

    def accept_answer(self, *, current: bool) -> str:
        """Return ``new``, ``duplicate`` or ``stale`` for an answer of the parent, and note it.

        ``current``: whether it is of the slot's round.
        """
        if not current:
            return "stale"
        verdict = "duplicate" if self.answered else "new"
        self.answered = True
        return verdict


@dataclass
class _Slot:
    aggregation: _Round = field(default_factory=_Round)
    acknowledgement: _Round = field(default_factory=_Round)


@dataclass
class _ActiveJob:
    job: Job
    counters: JobCounters
    members: dict[tuple[int, int], Member]
    slots: list[_Slot]

    def sender(self, kind: Kind, port: int, bitmap: int) -> Station | None:
        """Return the member or the parent that may send such a packet at the port, or None."""
        if kind in _ANSWERS:
            return self.members.get((port, bitmap))
        uplink = self.job.uplink
        return uplink if uplink and uplink.port == port and uplink.bitmap & bitmap else None


class _Answer(NamedTuple):
    """Packets that one packet causes: all have this kind, bitmap and values."""

    receivers: Sequence[Station]
    kind: Kind
    bitmap: int
    values: bytes


_ANSWERS = {Kind.AGG: Kind.RESULT, Kind.ACK: Kind.CONFIRM}


def _wrap(value: int) -> int:
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


class ReferenceSwitch(Switch):
    """Switch of docs/systems/aggregation.md for raw Ethernet and, unless ``encap`` is L2, UDP.

    - ``endpoint``: the switch's own addresses.
    - ``ports``: number of ports.
    - ``values``: V.

    Other traffic goes to the port of its destination MAC (members' MACs are known), or to all ports except the
    port that it came from.
    """

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        ports: int,
        values: int = DEFAULT_VALUES,
        protocol: Protocol = Protocol.P4SGD,
        encap: Encap = Encap.UDP,
    ):
        if ports < 1:
            raise ValueError(f"ports must be at least 1, not {ports!r}")
        self.endpoint, self.ports, self.values, self.protocol = endpoint, ports, values, protocol
        self._kinds, self._over_udp = (*protocol.to_switch, *protocol.to_worker), encap is Encap.UDP
        self._values = struct.Struct(f">{values}i")
        self._jobs: dict[int, _ActiveJob] = {}
        self._job_counters: dict[int, JobCounters] = {}
        self._counters = SwitchCounters()
        self._stations: dict[bytes, int] = {}

    def add_job(self, job: Job) -> None:  # noqa: D102
        for station in job.stations:
            if not 0 <= station.port < self.ports:
                raise ValueError(f"port must be 0 to {self.ports - 1}, not {station.port!r}")
        check_jobs([*(active.job for active in self._jobs.values()), job])
        for station in job.stations:
            self._stations[station.endpoint.mac.to_bytes(6, "big")] = station.port
        counters = self._job_counters[job.id] = JobCounters()
        members = {(m.port, m.bitmap): m for m in job.members}
        slots = [_Slot() for _ in range(job.slots)]
        self._jobs[job.id] = _ActiveJob(job, counters, members, slots)

    def remove_job(self, job_id: int) -> None:  # noqa: D102
        del self._jobs[job_id]
        stations = [station for active in self._jobs.values() for station in active.job.stations]
        self._stations = {s.endpoint.mac.to_bytes(6, "big"): s.port for s in stations}

    def job_counters(self, job_id: int) -> JobCounters:  # noqa: D102
        return self._job_counters[job_id]

    def counters(self) -> SwitchCounters:  # noqa: D102
        return self._counters

    def registers(self, job_id: int, index: int) -> SlotRegisters:
        """Return the state of a job's slot ``base + index``."""
        slot = self._jobs[job_id].slots[index]
        add, ack = slot.aggregation, slot.acknowledgement
        return SlotRegisters(
            add.number, add.seen, tuple(add.sums), ack.number, ack.seen, add.answered, ack.answered
        )

    def set_registers(self, job_id: int, index: int, registers: SlotRegisters) -> None:
        """Restore a state that ``registers`` returned."""
        add = _Round(registers.round, registers.seen, list(registers.sums), registers.total)
        ack = _Round(registers.ack_round, registers.ack_seen, answered=registers.confirmed)
        self._jobs[job_id].slots[index] = _Slot(add, ack)

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:  # noqa: D102
        if len(frame) < byte_length(ETHERNET):
            self._counters.malformed += 1
            return []
        ethertype = int.from_bytes(frame[12:14], "big")
        if ethertype == ETHERTYPE_AGGREGATION:
            offset = header_length(Encap.L2)
        elif ethertype == ETHERTYPE_IPV4 and self._over_udp and self._is_aggregation_over_udp(frame):
            offset = header_length(Encap.UDP)
            if internet_checksum(frame[_IP:_UDP]):
                self._counters.malformed += 1
                return []
        else:
            return [(destination, frame, time) for destination in self._forward(port, frame)]
        return [(station.port, answer, time) for station, answer in self._aggregate(port, frame, offset)]

    @staticmethod
    def _is_aggregation_over_udp(frame: bytes) -> bool:
        if len(frame) < header_length(Encap.UDP):
            return False
        version_ihl, _, _, _, fragment, _, protocol, _, _, _ = _IP_HEADER.unpack_from(frame, _IP)
        return (
            version_ihl == 0x45  # no options
            and not fragment & _MORE_OR_OFFSET
            and protocol == IP_PROTOCOL_UDP
            and int.from_bytes(frame[_UDP + 2 : _UDP + 4], "big") == UDP_PORT
        )

    def _forward(self, port: int, frame: bytes) -> list[int]:
        destination = frame[:6]
        is_group = destination[0] & 1
        destination_port = None if is_group else self._stations.get(destination)
        if destination_port is None:
            self._counters.flooded += 1
            return [p for p in range(self.ports) if p != port]
        self._counters.forwarded += 1
        return [destination_port] if destination_port != port else []

    def _aggregate(self, port: int, frame: bytes, offset: int) -> list[tuple[Station, bytes]]:
        """Apply the checks of docs/systems/aggregation.md, in its order."""
        if len(frame) < offset + payload_length(self.values):
            self._counters.malformed += 1
            return []
        version_kind, job_id, slot, number, bitmap = _HEADER.unpack_from(frame, offset)
        version, kind = version_kind >> 4, version_kind & 15
        if version != VERSION or kind not in self._kinds or number == 0:
            self._counters.malformed += 1
            return []
        active = self._jobs.get(job_id)
        sender = active.sender(Kind(kind), port, bitmap) if active else None
        if active is None or sender is None or not 0 <= slot - active.job.base < active.job.slots:
            self._counters.foreign += 1
            return []
        state = active.slots[slot - active.job.base]
        values = frame[offset + _HEADER.size :][: self._values.size]
        if isinstance(sender, Uplink):
            answer = self._descend(active, state, number, Kind(kind), values)
        elif kind == Kind.AGG:
            answer = self._add(active, state, number, sender, values)
        else:
            answer = self._acknowledge(active, state, number, sender, values)
        return [(s, self._frame(frame, offset, s, answer)) for s in answer.receivers] if answer else []

    def _add(
        self, active: _ActiveJob, slot: _Slot, number: int, sender: Station, values: bytes
    ) -> _Answer | None:
        """Handle a member's AGG: add its values once; send the sums if all have contributed."""
        state = slot.aggregation
        verdict = state.accept(number, sender.bitmap)
        if verdict == "new":
            active.counters.aggregated += 1
            terms, sums = self._values.unpack(values), state.sums
            state.sums = [_wrap(a + b) for a, b in zip(sums, terms, strict=True)] if sums else list(terms)
        answer = self._ascend(active, state, verdict, sender, Kind.AGG)
        if answer is None:
            return None
        active.counters.results += verdict == "new" and answer.kind is Kind.RESULT
        return answer._replace(values=self._values.pack(*state.sums))

    def _acknowledge(
        self, active: _ActiveJob, slot: _Slot, number: int, sender: Station, values: bytes
    ) -> _Answer | None:
        """Handle a member's ACK: answer if all have acknowledged, with the values of the ACK."""
        state = slot.acknowledgement
        verdict = state.accept(number, sender.bitmap)
        active.counters.acknowledged += verdict == "new"
        answer = self._ascend(active, state, verdict, sender, Kind.ACK)
        if answer is None:
            return None
        active.counters.confirms += verdict == "new" and answer.kind is Kind.CONFIRM
        return answer._replace(values=values)

    def _ascend(
        self, active: _ActiveJob, state: _Round, verdict: str, sender: Station, kind: Kind
    ) -> _Answer | None:
        """Return the answer, still without values, to a packet of a member on its way to the root.

        In a complete round the root answers all members, or the sender of a duplicate. Other switches send the
        packet to their parent, until it has answered.
        """
        job, counters = active.job, active.counters
        complete = state.seen == job.bitmap
        counters.stale += verdict == "stale"
        counters.duplicate += verdict == "duplicate"
        if verdict == "stale" or not complete:
            return None
        if job.uplink and not state.answered:
            counters.to_parent += verdict == "new"
            counters.to_parent_again += verdict == "duplicate"
            return _Answer([job.uplink], kind, job.uplink.bitmap, b"")
        counters.replies += verdict == "duplicate"
        return _Answer(self._receivers(job, verdict, sender), _ANSWERS[kind], job.bitmap, b"")

    @staticmethod
    def _receivers(job: Job, verdict: str, sender: Station) -> Sequence[Station]:
        """Return the members that get an answer: all, or the sender of a duplicate alone."""
        return [sender] if verdict == "duplicate" else job.members

    def _descend(
        self, active: _ActiveJob, slot: _Slot, number: int, kind: Kind, values: bytes
    ) -> _Answer | None:
        """Handle the parent's answer: RESULT replaces the sums; the first of a round goes to all members."""
        state = slot.aggregation if kind is Kind.RESULT else slot.acknowledgement
        counters = active.counters
        verdict = state.accept_answer(current=number == slot.aggregation.number)
        counters.stale += verdict == "stale"
        counters.duplicate += verdict == "duplicate"
        if kind is Kind.RESULT and verdict != "stale":
            state.sums = list(self._values.unpack(values))
        if verdict != "new":
            return None
        counters.results += kind is Kind.RESULT
        counters.confirms += kind is Kind.CONFIRM
        return _Answer(active.job.members, kind, active.job.bitmap, values)

    def _frame(self, frame: bytes, offset: int, receiver: Station, answer: _Answer) -> bytes:
        """Return the answer to a frame: addresses, kind, bitmap and values are new, the rest is unchanged."""
        _, job_id, slot, number, _ = _HEADER.unpack_from(frame, offset)
        header = _HEADER.pack(VERSION << 4 | answer.kind, job_id, slot, number, answer.bitmap)
        macs = receiver.endpoint.mac.to_bytes(6, "big") + self.endpoint.mac.to_bytes(6, "big")
        network_headers = frame[12:14] if offset == header_length(Encap.L2) else self._datagram(frame, receiver)
        rest = frame[offset + _HEADER.size + self._values.size :]
        return macs + network_headers + header + answer.values + rest

    def _datagram(self, frame: bytes, receiver: Station) -> bytes:
        """Return EtherType, IPv4 and UDP headers of the answer; the UDP checksum is 0, for none."""
        ip = list(_IP_HEADER.unpack_from(frame, _IP))
        ip[-3:] = 0, self.endpoint.ip, receiver.endpoint.ip
        ip[-3] = internet_checksum(_IP_HEADER.pack(*ip))
        udp_length = frame[_UDP + 4 : _UDP + 6]
        ports = struct.pack(">HH", self.endpoint.port, receiver.endpoint.port)
        return frame[12:14] + _IP_HEADER.pack(*ip) + ports + udp_length + b"\0\0"
