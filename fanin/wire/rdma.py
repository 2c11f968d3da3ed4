"""RDMA writes on the wire: the RoCEv2 packets that fanin's NIC supports, declared once.

Contract: docs/systems/rdma.md. The service is reliable connected, with WRITE and its acknowledgements.
Everything except the ICRC is in network byte order. Sources: InfiniBand Architecture Specification, volume 1,
chapter 9 and annex A17; opcode numbers: rdma-core, libibverbs/opcode.h.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum

from fanin.wire.ethernet import (
    DONT_FRAGMENT,
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    MIN_FRAME_BYTES,
    UDP,
    Endpoint,
    encode_udp,
    internet_checksum,
)
from fanin.wire.fields import Field, byte_length, field_bits, pack_fields, unpack_fields

ROCE_PORT = 4791
PARTITION = 0xFFFF  # full member of the default partition, the only one supported
PARTITION_BITS = 15  # of the key, without the bit for full (1) or limited membership
ICRC_BYTES = 4
PATH_MTUS = (256, 512, 1024, 2048, 4096)
MAX_MESSAGE_BYTES = 1 << 31
LINK_HEADER = b"\xff" * 8  # ones that precede the frame in the ICRC
ACK_SYNDROME = 31  # no credits: the responder does not limit messages


class Opcode(IntEnum):
    """Kind of a packet: part of a WRITE, or an acknowledgement."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMMEDIATE = 0x0B
    ACKNOWLEDGE = 0x11

    @property
    def begins(self) -> bool:
        """True if the packet begins a message, and therefore has a RETH."""
        return self in (Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE)

    @property
    def ends(self) -> bool:
        """True if the packet ends a message."""
        return self in (Opcode.WRITE_LAST, Opcode.WRITE_ONLY) or self.has_immediate

    @property
    def has_immediate(self) -> bool:
        """True if the packet has immediate data."""
        return self in (Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE)


CONGESTION_NOTICE = 0x81  # CNP: its opcode belongs to no service
# Opcodes of the same service that the NIC does not support: SEND and its kinds, READ, COMPARE SWAP, FETCH ADD,
# SEND with invalidate, FLUSH, ATOMIC WRITE.
REFUSED_OPCODES = (*range(6), 0x0C, 0x13, 0x14, 0x16, 0x17, 0x1C, 0x1D)


class Fault(IntEnum):
    """Reason why a frame has no acceptable packet; the first that applies."""

    NONE = 0
    FOREIGN = 1  #: not RoCEv2, or for other addresses
    DAMAGED = 2  #: a length, the checksum or the ICRC is wrong
    CONGESTION = 3  #: a congestion notice
    OPCODE = 4  #: an opcode that is neither supported nor refused
    UNKNOWN = 5  #: another version or partition, or no queue pair of this NIC


class Nak(IntEnum):
    """Reason why a responder refuses a packet; all except SEQUENCE end the connection."""

    SEQUENCE = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS = 2
    REMOTE_OPERATION = 3

    @property
    def syndrome(self) -> int:
        """Syndrome in the AETH."""
        return 0b011 << 5 | self


NOT_READY = 0b001  # syndrome type "RNR NAK": the receiver has no buffer for a message yet

BTH = (
    Field("opcode", 8, "what the packet is"),
    Field("solicited", 1, "0; ignored"),
    Field("migration", 1, "1: migrated; ignored"),
    Field("pad", 2, "zero bytes behind the payload, which make it whole words of 4"),
    Field("version", 4, "0"),
    Field("partition", 16, "0xFFFF; of a limited member, 0x7FFF, it is taken, too"),
    Field("congestion", 8, "FECN, BECN and reserved bits: 0; ignored, and no part of the ICRC"),
    Field("queue_pair", 24, "the receiver's"),
    Field("acknowledge", 1, "1: an ACK is asked for"),
    Field("reserved", 7, "0; ignored"),
    Field("psn", 24, "packet sequence number"),
)
PSN_BITS = field_bits(BTH, "psn")
RETH = (
    Field("address", 64, "where the message begins in the receiver's memory"),
    Field("rkey", 32, "key of the region"),
    Field("length", 32, "bytes of the message"),
)
IMMEDIATE = (Field("immediate", 32, "handed to the receiver with its completion"),)
AETH = (
    Field("syndrome", 8, "0x1F ACK; 0x60 NAK: sequence, 0x61 invalid request, 0x62 remote access"),
    Field("msn", 24, "messages that are complete"),
)

# Offsets of a frame's headers, in bytes; the opcode's extension headers are at REST_AT.
IP_AT = byte_length(ETHERNET)
UDP_AT = IP_AT + byte_length(IPV4)
BTH_AT = UDP_AT + byte_length(UDP)
REST_AT = BTH_AT + byte_length(BTH)


def _bytes_of(fields: tuple[Field, ...], *names: str) -> list[int]:
    """Return the offsets of some fields' bytes in their header."""
    position = 0
    offsets: list[int] = []
    for field in fields:
        if field.name in names:
            offsets += range(position // 8, (position + field.bits) // 8)
        position += field.bits
    return offsets


# Bytes that a router may change, replaced by ones in the ICRC: offsets from the IPv4 header.
MUTABLE = (
    *_bytes_of(IPV4, "tos", "ttl", "checksum"),
    *(UDP_AT - IP_AT + at for at in _bytes_of(UDP, "checksum")),
    *(BTH_AT - IP_AT + at for at in _bytes_of(BTH, "congestion")),
)


@dataclass(frozen=True)
class RdmaPacket:
    """A packet without its addresses; fields that its opcode does not have keep their defaults.

    In a packet with one of ``REFUSED_OPCODES``, ``payload`` is everything after the BTH.
    """

    opcode: int
    queue_pair: int
    psn: int
    acknowledge: bool = False
    address: int = 0
    rkey: int = 0
    length: int = 0
    immediate: int = 0
    syndrome: int = ACK_SYNDROME
    msn: int = 0
    payload: bytes = b""
    partition: int = PARTITION
    version: int = 0


def extensions(opcode: int) -> list[tuple[Field, ...]]:
    """Return the headers between BTH and payload. Raises ValueError for an unsupported opcode."""
    kind = Opcode(opcode)
    if kind is Opcode.ACKNOWLEDGE:
        return [AETH]
    return [RETH] * kind.begins + [IMMEDIATE] * kind.has_immediate


def _extension_fields(opcode: int) -> tuple[Field, ...]:
    return tuple(field for header in extensions(opcode) for field in header)


def header_bytes(opcode: Opcode) -> int:
    """Return the bytes from the Ethernet header to the payload."""
    return REST_AT + sum(byte_length(fields) for fields in extensions(opcode))


MOST_HEADER_BYTES = max(map(header_bytes, Opcode))


def read_headers(frame: bytes) -> dict[str, int] | None:
    """Return the fields of BTH and extension headers of a frame, of which the beginning suffices.

    Returns None for other traffic, recognised by EtherType, protocol, UDP port and opcode. Nothing else is
    checked.
    """
    if len(frame) < REST_AT:
        return None
    protocols = (
        unpack_fields(ETHERNET, frame)["ethertype"],
        unpack_fields(IPV4, frame[IP_AT:])["protocol"],
        unpack_fields(UDP, frame[UDP_AT:])["destination_port"],
    )
    bth = unpack_fields(BTH, frame[BTH_AT:])
    if protocols != (ETHERTYPE_IPV4, IP_PROTOCOL_UDP, ROCE_PORT) or bth["opcode"] not in set(Opcode):
        return None
    extension = _extension_fields(bth["opcode"])
    if len(frame) < REST_AT + byte_length(extension):
        return None
    return bth | unpack_fields(extension, frame[REST_AT:])


def icrc(frame: bytes) -> int:
    """Return the invariant CRC of ``frame``, which ends before its ICRC.

    The CRC covers a link header of ones, then everything from the IPv4 header on; bytes that a router may
    change count as ones.
    """
    covered = bytearray(frame[IP_AT:])
    for offset in MUTABLE:
        covered[offset] = 0xFF
    return zlib.crc32(LINK_HEADER + covered)


def encode(packet: RdmaPacket, *, source: Endpoint, destination: Endpoint, tos: int = 0) -> bytes:
    """Return the frame of a packet, without FCS. ``source.port`` is free; the destination port is 4791."""
    pad = -len(packet.payload) % 4
    bth = {f.name: int(getattr(packet, f.name)) for f in BTH if hasattr(packet, f.name)}
    header = pack_fields(BTH, bth | {"migration": 1, "pad": pad})
    extension = _extension_fields(packet.opcode)
    header += pack_fields(extension, {f.name: getattr(packet, f.name) for f in extension})
    # The lengths of IPv4 and UDP include the ICRC, so the frame is made with a place for it.
    body = header + packet.payload + bytes(pad) + bytes(ICRC_BYTES)
    roce_destination = Endpoint(destination.mac, destination.ip, ROCE_PORT)
    frame = encode_udp(body, source=source, destination=roce_destination, tos=tos, flags=DONT_FRAGMENT)
    frame = frame[:-ICRC_BYTES]
    return (frame + icrc(frame).to_bytes(ICRC_BYTES, "little")).ljust(MIN_FRAME_BYTES, b"\0")


def decode(frame: bytes) -> RdmaPacket | None:
    """Return the packet of a frame, or None if the frame has a :class:`Fault`; addresses are not checked."""
    result = judge(frame)
    return result if isinstance(result, RdmaPacket) else None


def judge(frame: bytes, *, own: Endpoint | None = None) -> RdmaPacket | Fault:
    """Return the packet of a frame, or the fault of the frame.

    A packet with one of ``REFUSED_OPCODES`` is no fault. Bytes after the IPv4 length are ignored. ``own``: MAC
    and IPv4 address that the frame must have as destination; None accepts any.
    """
    if len(frame) < UDP_AT:
        return Fault.FOREIGN
    ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[IP_AT:])
    expected = {"version": 4, "ihl": 5, "protocol": IP_PROTOCOL_UDP, "fragment": 0}
    if (
        ethernet["ethertype"] != ETHERTYPE_IPV4
        or any(ip[name] != value for name, value in expected.items())
        or ip["flags"] & 1  # more fragments
        or (own and (ethernet["destination"], ip["destination"]) != (own.mac, own.ip))
        or frame[UDP_AT + 2 : UDP_AT + 4] != ROCE_PORT.to_bytes(2, "big")
    ):
        return Fault.FOREIGN
    end = IP_AT + ip["length"]
    if not REST_AT + ICRC_BYTES <= end <= len(frame) or internet_checksum(frame[IP_AT:UDP_AT]):
        return Fault.DAMAGED
    if unpack_fields(UDP, frame[UDP_AT:])["length"] != ip["length"] - byte_length(IPV4):
        return Fault.DAMAGED
    return _judge_transport(frame[: end - ICRC_BYTES], frame[end - ICRC_BYTES : end])


def _judge_transport(frame: bytes, check: bytes) -> RdmaPacket | Fault:
    """Judge BTH and later headers of a frame that ends before its ICRC; ``check`` is that ICRC."""
    bth = unpack_fields(BTH, frame[BTH_AT:])
    supported = bth["opcode"] in set(Opcode)
    extension = _extension_fields(bth["opcode"]) if supported else ()
    body = frame[REST_AT + byte_length(extension) :]
    too_short = len(frame) < REST_AT + byte_length(extension) + bth["pad"]
    too_long = supported and len(body) - bth["pad"] > max(PATH_MTUS)
    if icrc(frame).to_bytes(ICRC_BYTES, "little") != check or len(body) % 4 or too_short or too_long:
        return Fault.DAMAGED
    if bth["opcode"] == CONGESTION_NOTICE:
        return Fault.CONGESTION
    if not supported and bth["opcode"] not in REFUSED_OPCODES:
        return Fault.OPCODE
    is_other_partition = (bth["partition"] ^ PARTITION) % (1 << PARTITION_BITS)  # membership does not count
    if bth["version"] or is_other_partition:
        return Fault.UNKNOWN
    bth_fields = {name: bth[name] for name in ("opcode", "queue_pair", "psn", "partition", "version")}
    fields = unpack_fields(extension, frame[REST_AT:])
    payload = body[: len(body) - bth["pad"]]
    return RdmaPacket(acknowledge=bool(bth["acknowledge"]), payload=payload, **bth_fields, **fields)
