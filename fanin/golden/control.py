"""Model of a board's own replies (docs/systems/boards.md, "Control"), in plain Python: ARP, ping and control.

The model has no clock: its caller passes the time with each frame. The RTL (:mod:`fanin.hdl.net.control`) is
compared with it, and host programs are tested against it.
"""

from __future__ import annotations

import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from fanin.wire.arp import ARP, ETHERTYPE_ARP, HARDWARE_ETHERNET, IPV4_BYTES, MAC_BYTES, Operation, encode_arp
from fanin.wire.control import (
    ABOUT_WORDS,
    CONTROL,
    CONTROL_AT,
    CONTROL_PORT,
    FIRST_SEQUENCE,
    IDENTITY_WORDS,
    IP_AT,
    MAGIC,
    MAX_CHECKSUM,
    MAX_DUMP,
    MAX_FRAME,
    REST_AT,
    VERSION,
    WORD_BYTES,
    WRITE_BIT,
    ControlFrame,
    Kind,
    Status,
    encode_control,
    memory_bytes,
    unpack_words,
)
from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    Endpoint,
    encode_udp,
    internet_checksum,
)
from fanin.wire.fields import byte_length, pack_fields, unpack_fields
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP, EchoType, encode_icmp

LEASE_SECONDS = 60.0
#: Shortest frame, in bytes, whose destination can be determined: it includes the word with the UDP port.
MIN_FRAME = 40
_HALF_SEQUENCE = 1 << 31


class Destination(Enum):
    """Addressee of a received frame."""

    NODE = "node"
    BOARD = "board"  #: ARP, echo requests and control
    NOBODY = "nobody"  #: frames for another MAC address, and frames that are too short


def destination(frame: bytes, own: Endpoint) -> Destination:
    """Return the addressee of a frame; bytes missing in its last word count as 0."""
    if len(frame) <= MIN_FRAME - WORD_BYTES:
        return Destination.NOBODY
    frame = frame.ljust(CONTROL_AT, b"\0")
    ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[IP_AT:])
    to_board = ethernet["destination"] == own.mac
    if not to_board and not frame[0] & 1:
        return Destination.NOBODY
    if ethernet["ethertype"] == ETHERTYPE_ARP:
        return Destination.BOARD
    unfragmented = (ip["version"], ip["ihl"], ip["flags"] & 1, ip["fragment"]) == (4, 5, 0, 0)
    if (
        not to_board
        or ethernet["ethertype"] != ETHERTYPE_IPV4
        or not unfragmented
        or ip["destination"] != own.ip
    ):
        return Destination.NODE
    icmp, udp = unpack_fields(ICMP_ECHO, frame[REST_AT:]), unpack_fields(UDP, frame[REST_AT:])
    echo = ip["protocol"] == IP_PROTOCOL_ICMP and (icmp["type"], icmp["code"]) == (EchoType.REQUEST, 0)
    control = ip["protocol"] == IP_PROTOCOL_UDP and udp["destination_port"] == CONTROL_PORT
    return Destination.BOARD if echo or control else Destination.NODE


class Bus(Protocol):
    """Words of 32 bits by byte address; a dict is one. KeyError means that the bus answers with an error."""

    def __getitem__(self, address: int, /) -> int:
        """Read a word."""

    def __setitem__(self, address: int, data: int, /) -> None:
        """Write a word."""


@dataclass(frozen=True)
class _Answer:
    """Content of a reply after the request's own kind, lease and sequence."""

    status: Status
    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Offer:
    """Number of the next lease, and the host that may take it: its IPv4 and MAC address, without port."""

    lease: int
    host: Endpoint


class BoardModel:
    """Model of a board: frames in, replies out, and accesses to ``bus``. Times are numbers in any unit.

    - ``own``: addresses of the board.
    - ``lease_time``: time without a request after which the lease ends.
    - ``about``: returns the words of ABOUT between holder and offer.
    - ``draw``: returns a random 32-bit number; it is called again for a number that cannot be offered.
    - ``counters``: those of the RTL: ``requests`` carried out, ``repeats``, ``stale``, ``refused``,
      ``malformed``, ``arps``, ``echoes``.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        own: Endpoint,
        lease_time: float = LEASE_SECONDS,
        about: Callable[[], Sequence[int]] = lambda: (0,) * IDENTITY_WORDS,
        draw: Callable[[], int] = lambda: secrets.randbits(32),
    ):
        self.bus = bus
        self.own = own
        self.lease_time = lease_time
        self.about = about
        self.draw = draw
        self.offer: Offer | None = None  #: last offer, until it is taken
        self.counters: Counter[str] = Counter()
        self.lease = 0  # last lease that held the board
        self._is_held = False  # whether that lease still holds it
        self._host = Endpoint(0, 0)  # host of that lease
        self._last_request = 0.0  # time of its last request
        self._sequence = 0
        self._answer = _Answer(Status.DONE)

    def holder(self, now: float) -> int:
        """Return the IPv4 address of the host that holds the board; 0 for none."""
        self._is_held = self._is_held and now - self._last_request < self.lease_time
        return self._host.ip if self._is_held else 0

    def answer(self, frame: bytes, now: float) -> bytes | None:
        """Return the reply to a frame for the board, without padding; None if there is none."""
        if len(frame) > MAX_FRAME:
            return None
        if unpack_fields(ETHERNET, frame)["ethertype"] == ETHERTYPE_ARP:
            return self._arp(frame)
        frame = frame.ljust(CONTROL_AT, b"\0")
        ip = unpack_fields(IPV4, frame[IP_AT:])
        if internet_checksum(frame[IP_AT:REST_AT]) or IP_AT + ip["length"] > len(frame):
            self.counters["malformed"] += 1
            return None
        ip_payload = frame[REST_AT : IP_AT + ip["length"]]
        sender = Endpoint(unpack_fields(ETHERNET, frame)["source"], ip["source"])
        if ip["protocol"] == IP_PROTOCOL_ICMP:
            return self._echo(ip_payload, sender)
        return self._datagram(ip_payload, sender, now)

    def _arp(self, frame: bytes) -> bytes | None:
        if len(frame) < IP_AT + byte_length(ARP):
            return None
        arp = unpack_fields(ARP, frame[IP_AT:])
        form = tuple(arp[name] for name in ("hardware", "protocol", "hardware_bytes", "protocol_bytes"))
        if form != (HARDWARE_ETHERNET, ETHERTYPE_IPV4, MAC_BYTES, IPV4_BYTES):
            return None
        if arp["operation"] != Operation.REQUEST or arp["target_ip"] != self.own.ip:
            return None
        self.counters["arps"] += 1
        requester = Endpoint(arp["sender_mac"], arp["sender_ip"])
        return encode_arp(Operation.REPLY, sender=self.own, target=requester, destination=requester.mac)

    def _echo(self, message: bytes, sender: Endpoint) -> bytes | None:
        """Return the echo reply: the same bytes, type and checksum updated; a wrong checksum stays wrong."""
        if len(message) < byte_length(ICMP_ECHO):
            self.counters["malformed"] += 1
            return None
        self.counters["echoes"] += 1
        echo = unpack_fields(ICMP_ECHO, message)
        checksum = echo["checksum"] + (EchoType.REQUEST << 8)
        echo |= {"type": EchoType.REPLY, "checksum": (checksum & 0xFFFF) + (checksum >> 16)}
        reply = pack_fields(ICMP_ECHO, echo) + message[byte_length(ICMP_ECHO) :]
        return encode_icmp(reply, source=self.own, destination=sender)

    def _datagram(self, datagram: bytes, sender: Endpoint, now: float) -> bytes | None:
        if len(datagram) < byte_length(UDP) or unpack_fields(UDP, datagram)["length"] != len(datagram):
            self.counters["malformed"] += 1
            return None
        reply = self.control(datagram[byte_length(UDP) :], sender, now)
        if reply is None:
            return None
        port = unpack_fields(UDP, datagram)["source_port"]
        return encode_udp(
            reply, source=replace(self.own, port=CONTROL_PORT), destination=replace(sender, port=port)
        )

    def control(self, payload: bytes, host: Endpoint, now: float) -> bytes | None:
        """Return the reply to a control request from ``host``; both are UDP payloads."""
        size = byte_length(CONTROL)
        if len(payload) < size:
            self.counters["malformed"] += 1
            return None
        header = unpack_fields(CONTROL, payload)
        if header["magic"] != MAGIC or header["status"] != Status.REQUEST:
            self.counters["malformed"] += 1
            return None
        answer = self._judge(header, payload[size:], replace(host, port=0), now)
        if answer is None:
            return None
        reply = ControlFrame(
            header["kind"],
            header["lease"],
            header["sequence"],
            count=len(answer.words),
            words=answer.words,
            status=answer.status,
        )
        return encode_control(reply)

    def _judge(self, header: dict[str, int], body: bytes, host: Endpoint, now: float) -> _Answer | None:
        """Return the answer to a request: check its form, then lease and address, then sequence number."""
        holder = self.holder(now)
        if not _well_formed(header, body):
            self.counters["malformed"] += 1
            return _Answer(Status.MALFORMED)
        if header["kind"] == Kind.HELLO:
            self.counters["requests"] += 1
            self.offer = self._draw_offer(host)
            return _Answer(Status.DONE, (holder, *self.about(), self.offer.lease))
        is_current = header["lease"] == self.lease
        if is_current and host != self._host:  # not the holder's address: no reply
            self.counters["refused"] += 1
            return None
        takes_offer = self.offer == Offer(header["lease"], host) and header["sequence"] == FIRST_SEQUENCE
        if not is_current and (self._is_held or not takes_offer):
            self.counters["refused"] += 1
            return _Answer(Status.HELD if self._is_held else Status.UNKNOWN)
        distance = (header["sequence"] - self._sequence) % (2 * _HALF_SEQUENCE)
        if is_current and distance >= _HALF_SEQUENCE:  # older than the last request: no reply
            self.counters["stale"] += 1
            return None
        self._last_request = now
        if is_current and not distance:  # the last request again: repeat its reply, do not carry it out
            self.counters["repeats"] += 1
            return self._answer
        self.counters["requests"] += 1
        if not is_current:
            self.offer = None
        self.lease, self._sequence, self._host = header["lease"], header["sequence"], host
        self._is_held = header["kind"] != Kind.RELEASE
        self._answer = self._carry_out(Kind(header["kind"]), header["count"], unpack_words(body))
        return self._answer

    def _draw_offer(self, host: Endpoint) -> Offer:
        """Draw an offer for ``host`` whose number is neither 0 nor the last lease's."""
        while (number := self.draw()) in (0, self.lease):
            pass
        return Offer(number, host)

    def _carry_out(self, kind: Kind, count: int, words: Sequence[int]) -> _Answer:
        address = 0
        read: list[int] = []
        try:
            for address, data in _accesses(kind, count, words):
                if data is None:
                    read.append(self.bus[address])
                else:
                    self.bus[address] = data
        except KeyError:
            return _Answer(Status.BUS, (address,))
        if kind is Kind.CHECKSUM:
            read = [zlib.crc32(memory_bytes(read))]
        return _Answer(Status.DONE, tuple(read))


def _well_formed(header: dict[str, int], body: bytes) -> bool:
    """Return whether version, kind, lease, count and length are consistent."""
    kind, count, words = header["kind"], header["count"], len(body) // WORD_BYTES
    if header["version"] != VERSION or kind not in set(Kind) or len(body) % WORD_BYTES:
        return False
    if kind == Kind.HELLO:
        return words == ABOUT_WORDS and not count
    if not header["lease"]:
        return False
    match kind:
        case Kind.ACCESS:
            return words == 2 * count
        case Kind.LOAD:
            return words == 1 + count
        case Kind.DUMP:
            return words == 1 and count <= MAX_DUMP
        case Kind.CHECKSUM:
            return words == 2 and not count and unpack_words(body)[1] <= MAX_CHECKSUM
    return not body and not count


def _accesses(kind: Kind, count: int, words: Sequence[int]) -> list[tuple[int, int | None]]:
    """Return addresses in order, each with the data to write, or None for a read."""
    if kind is Kind.ACCESS:
        pairs = zip(words[::2], words[1::2], strict=True)
        return [(address & ~WRITE_BIT, data if address & WRITE_BIT else None) for address, data in pairs]
    if kind is Kind.RELEASE:
        return []
    count = words[1] if kind is Kind.CHECKSUM else count
    data: Sequence[int | None] = words[1:] if kind is Kind.LOAD else [None] * count
    return [((words[0] + WORD_BYTES * n) % (1 << 32), word) for n, word in enumerate(data)]
