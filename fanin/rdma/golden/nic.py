"""Golden model of the one-sided write NIC, packet by packet.

Contract: docs/systems/rdma.md. A requester divides writes into packets, keeps a window of them in flight and
goes back to the first missing one. A responder checks a packet completely before it writes a byte. The model
has no time: the caller carries packets and reports timeouts. Source: InfiniBand Architecture Specification,
volume 1, section 9.7; RDMA-wild, section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from fanin.rdma.facts import Connection, Region, Write
from fanin.wire.rdma import (
    ACK_SYNDROME,
    MAX_MESSAGE_BYTES,
    NOT_READY,
    PSN_BITS,
    REFUSED_OPCODES,
    Nak,
    Opcode,
    RdmaPacket,
)

PSNS = 1 << PSN_BITS


def psn_after(psn: int, steps: int) -> int:
    """Return the packet sequence number ``steps`` after ``psn``; ``steps`` may be negative."""
    return (psn + steps) % PSNS


def psn_distance(psn: int, since: int) -> int:
    """Return the steps from ``since`` to ``psn``; negative if ``psn`` is earlier, by up to half of all
    numbers.
    """
    return (psn - since + PSNS // 2) % PSNS - PSNS // 2


class Status(Enum):
    """Result of a write."""

    DONE = "done"
    ACCESS = "remote access error"
    REQUEST = "remote invalid request"
    OPERATION = "remote operation error"
    RETRIES = "retries exceeded"
    FLUSHED = "flushed"  # an earlier write of its queue pair failed


_REFUSED = {
    Nak.INVALID_REQUEST: Status.REQUEST,
    Nak.REMOTE_ACCESS: Status.ACCESS,
    Nak.REMOTE_OPERATION: Status.OPERATION,
}


@dataclass(frozen=True)
class Completion:
    """Report of a requester on a descriptor; there is one per descriptor."""

    tag: int
    status: Status


@dataclass(frozen=True)
class Arrival:
    """Report of a responder on a message with immediate data; there is one per message."""

    queue_pair: int
    immediate: int
    length: int


@dataclass
class _Message:
    """A write in progress: its first PSN, and its number of packets."""

    write: Write
    first: int
    packets: int

    @property
    def last(self) -> int:
        """PSN of the message's last packet."""
        return psn_after(self.first, self.packets - 1)


class Requester:
    """Sending half of a queue pair: sends writes from ``memory``, and collects their completions."""

    def __init__(self, connection: Connection, memory: bytearray):
        self.connection = connection
        self.memory = memory
        self.completions: list[Completion] = []
        self.failed = False
        self._messages: deque[_Message] = deque()
        # PSNs: oldest unacknowledged packet, next packet to send, first packet of the next message.
        self._oldest = self._next = self._free = connection.send_psn
        self._attempts = 0  # retransmissions without progress
        self._not_ready = False  # the receiver has no buffer for the oldest packet, which waits for the timeout

    @property
    def idle(self) -> bool:
        """True if no write is unfinished."""
        return not self._messages

    def post(self, write: Write) -> None:
        """Accept a descriptor. Raises ValueError if it is longer than a message may be."""
        if not 0 <= write.length <= MAX_MESSAGE_BYTES:
            raise ValueError(f"write {write.tag}: {write.length} bytes; at most {MAX_MESSAGE_BYTES}")
        if self.failed:
            self.completions.append(Completion(write.tag, Status.FLUSHED))
            return
        packets = max(1, -(-write.length // self.connection.mtu))
        self._messages.append(_Message(write, self._free, packets))
        self._free = psn_after(self._free, packets)

    def packets(self) -> Iterator[RdmaPacket]:
        """Yield the packets that the window allows to send."""
        while not self.failed and self._next != self._free:
            if psn_distance(self._next, self._oldest) >= self.connection.window:
                return
            packet = self._packet(self._next)
            self._next = psn_after(self._next, 1)
            yield packet

    def receive(self, packet: RdmaPacket) -> None:
        """Handle an acknowledgement; one for a packet that is not in flight is ignored."""
        sequence = packet.syndrome == Nak.SEQUENCE.syndrome
        refused = next((status for nak, status in _REFUSED.items() if packet.syndrome == nak.syndrome), None)
        positive = packet.syndrome >> 5 == 0
        not_ready = packet.syndrome >> 5 == NOT_READY
        if self.failed or not (positive or sequence or refused or not_ready):
            return
        if not 0 <= psn_distance(packet.psn, self._oldest) < psn_distance(self._next, self._oldest):
            return
        # A NAK acknowledges all packets before its own.
        self._acknowledge(psn_after(packet.psn, 1) if positive else packet.psn)
        if refused:
            self._fail(refused)
        elif not_ready:
            self._not_ready = True
        elif sequence and not self._not_ready:  # otherwise the NAK is about packets after the waiting one
            self._go_back()

    def timeout(self) -> None:
        """Retransmit: no acknowledgement has made progress for the timeout."""
        if not self.failed and self._next != self._oldest:
            self._go_back()

    def _acknowledge(self, oldest: int) -> None:
        if oldest != self._oldest:
            self._oldest, self._attempts, self._not_ready = oldest, 0, False
        while self._messages and psn_distance(self._messages[0].last, self._oldest) < 0:
            self.completions.append(Completion(self._messages.popleft().write.tag, Status.DONE))

    def _go_back(self) -> None:
        if self._attempts == self.connection.retries:
            self._fail(Status.RETRIES)
        else:
            self._attempts += 1
            self._next, self._not_ready = self._oldest, False

    def _fail(self, status: Status) -> None:
        self.failed = True
        while self._messages:
            self.completions.append(Completion(self._messages.popleft().write.tag, status))
            status = Status.FLUSHED

    def _packet(self, psn: int) -> RdmaPacket:
        message = next(m for m in self._messages if psn_distance(m.last, psn) >= 0)
        write, mtu = message.write, self.connection.mtu
        index = psn_distance(psn, message.first)
        begins, ends = index == 0, index == message.packets - 1
        immediate = write.immediate is not None
        if begins:
            opcode = Opcode.WRITE_FIRST
            if ends:
                opcode = Opcode.WRITE_ONLY_IMMEDIATE if immediate else Opcode.WRITE_ONLY
        elif ends:
            opcode = Opcode.WRITE_LAST_IMMEDIATE if immediate else Opcode.WRITE_LAST
        else:
            opcode = Opcode.WRITE_MIDDLE
        start, end = index * mtu, min(write.length, (index + 1) * mtu)
        # Request an acknowledgement at the message's end, and often enough for the window to advance.
        ack_interval = max(1, self.connection.window // 4)
        return RdmaPacket(
            opcode,
            self.connection.peer,
            psn,
            acknowledge=ends or psn % ack_interval == 0,
            address=write.remote if begins else 0,
            rkey=write.rkey if begins else 0,
            length=write.length if begins else 0,
            immediate=write.immediate or 0 if opcode.has_immediate else 0,
            payload=bytes(self.memory[write.local + start : write.local + end]),
        )


@dataclass
class _OpenMessage:
    """A message in progress: address of its next byte, remaining bytes, and length."""

    address: int
    remaining: int
    length: int


@dataclass
class Responder:
    """Receiving half of a queue pair: stores writes in ``memory``, and collects arrivals."""

    number: int
    connection: Connection
    memory: bytearray
    regions: list[Region]
    arrivals: list[Arrival] = field(default_factory=list)
    failed: bool = False

    def __post_init__(self) -> None:
        self._expected = self.connection.receive_psn
        self._messages = 0
        self._open: _OpenMessage | None = None
        self._nak_sent = False  # a NAK for the expected packet was sent

    def receive(self, packet: RdmaPacket) -> RdmaPacket | None:
        """Handle a request; return the answer, if any. Only parts of WRITEs are accepted."""
        if self.failed:
            return None
        distance = psn_distance(packet.psn, self._expected)
        if distance < 0:
            return self._answer(psn_after(self._expected, -1))
        if distance > 0:
            answer = None if self._nak_sent else self._answer(self._expected, Nak.SEQUENCE)
            self._nak_sent = True
            return answer
        if (nak := self._check(packet)) is not None:
            self.failed = True
            return self._answer(self._expected, nak)
        self._store(packet)
        return self._answer(packet.psn) if packet.acknowledge else None

    def _check(self, packet: RdmaPacket) -> Nak | None:
        """Return the NAK for a refused packet: check order of opcodes and lengths first, then the region."""
        if packet.opcode in REFUSED_OPCODES:
            return Nak.INVALID_REQUEST
        opcode, size, mtu = Opcode(packet.opcode), len(packet.payload), self.connection.mtu
        if opcode.begins != (self._open is None):
            return Nak.INVALID_REQUEST
        remaining = packet.length if opcode.begins else self._remaining
        if (
            not (size == remaining <= mtu if opcode.ends else size == mtu < remaining)
            or remaining > MAX_MESSAGE_BYTES
        ):
            return Nak.INVALID_REQUEST
        if opcode.begins and packet.length and not self._may_write(packet):
            return Nak.REMOTE_ACCESS
        return None

    @property
    def _remaining(self) -> int:
        return self._open.remaining if self._open else 0

    def _may_write(self, packet: RdmaPacket) -> bool:
        return any(
            region.rkey == packet.rkey
            and region.writable
            and self.number in region.queue_pairs
            and region.contains(packet.address, packet.length)
            for region in self.regions
        )

    def _store(self, packet: RdmaPacket) -> None:
        opcode, size = Opcode(packet.opcode), len(packet.payload)
        message = self._open or _OpenMessage(packet.address, packet.length, packet.length)
        self.memory[message.address : message.address + size] = packet.payload
        message.address += size
        message.remaining -= size
        self._open = None if opcode.ends else message
        self._expected = psn_after(self._expected, 1)
        self._nak_sent = False
        if opcode.ends:
            self._messages = psn_after(self._messages, 1)
        if opcode.has_immediate:
            self.arrivals.append(Arrival(self.number, packet.immediate, message.length))

    def _answer(self, psn: int, nak: Nak | None = None) -> RdmaPacket:
        syndrome = ACK_SYNDROME if nak is None else nak.syndrome
        return RdmaPacket(Opcode.ACKNOWLEDGE, self.connection.peer, psn, syndrome=syndrome, msn=self._messages)
