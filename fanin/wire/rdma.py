"""RDMA writes on the wire: the packets of RoCEv2 that fanin's NIC speaks, declared once.

Contract: docs/systems/rdma.md. Reliable connected service, WRITE and its acknowledgements; everything but
the ICRC is in network byte order. Source: InfiniBand Architecture Specification, volume 1, chapter 9 and
annex A17; numbers of opcodes: rdma-core, libibverbs/opcode.h.
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
PARTITION = 0xFFFF  # full member of the default partition; no other one is known
PARTITION_BITS = 15  # of the key, without the bit that tells full members (1) from limited ones
ICRC_BYTES = 4
PATH_MTUS = (256, 512, 1024, 2048, 4096)
MAX_MESSAGE_BYTES = 1 << 31
LINK_HEADER = b"\xff" * 8  # of ones, in front of what the ICRC covers
ACK_SYNDROME = 31  # no credits: the responder does not limit messages


class Opcode(IntEnum):
    """What a packet is: a part of a WRITE, or its acknowledgement."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMMEDIATE = 0x0B
    ACKNOWLEDGE = 0x11

    @property
    def begins(self) -> bool:
        """Whether it begins a message, and so has a RETH."""
        return self in (Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE)

    @property
    def ends(self) -> bool:
        """Whether it ends a message."""
        return self in (Opcode.WRITE_LAST, Opcode.WRITE_ONLY) or self.has_immediate

    @property
    def has_immediate(self) -> bool:
        """Whether it brings immediate data."""
        return self in (Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE)


CONGESTION_NOTICE = 0x81  # CNP: an opcode outside of every service
# Opcodes of the same service that ask for what the NIC does not do: SEND and its kinds, READ, COMPARE SWAP,
# FETCH ADD, SEND with invalidate, FLUSH, ATOMIC WRITE.
REFUSED_OPCODES = (*range(6), 0x0C, 0x13, 0x14, 0x16, 0x17, 0x1C, 0x1D)


class Fault(IntEnum):
    """Why a frame is no packet to act on; the first that holds."""

    NONE = 0
    FOREIGN = 1  #: no RoCEv2, or for other addresses
    DAMAGED = 2  #: a length, the checksum or the ICRC is wrong
    CONGESTION = 3  #: a congestion notice
    OPCODE = 4  #: any other opcode that is neither spoken nor refused
    UNKNOWN = 5  #: another version or partition, or no queue pair of this NIC


class Nak(IntEnum):
    """Why a responder refuses a packet; all but the first end the connection."""

    SEQUENCE = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS = 2
    REMOTE_OPERATION = 3

    @property
    def syndrome(self) -> int:
        """The AETH's syndrome."""
        return 0b011 << 5 | self


NOT_READY = 0b001  # type of a syndrome: the receiver has no buffer for a message yet ("RNR NAK")

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

# Where the headers of a frame begin, in bytes; at REST_AT, that which the opcode asks for.
IP_AT = byte_length(ETHERNET)
UDP_AT = IP_AT + byte_length(IPV4)
BTH_AT = UDP_AT + byte_length(UDP)
REST_AT = BTH_AT + byte_length(BTH)


def _bytes_of(fields: tuple[Field, ...], *names: str) -> list[int]:
    """Where the bytes of some fields lie in their header."""
    at = 0
    found: list[int] = []
    for field in fields:
        if field.name in names:
            found += range(at // 8, (at + field.bits) // 8)
        at += field.bits
    return found


# What a router may change, for which the ICRC takes ones: offsets in bytes from the IPv4 header.
MUTABLE = (
    *_bytes_of(IPV4, "tos", "ttl", "checksum"),
    *(UDP_AT - IP_AT + at for at in _bytes_of(UDP, "checksum")),
    *(BTH_AT - IP_AT + at for at in _bytes_of(BTH, "congestion")),
)


@dataclass(frozen=True)
class RdmaPacket:
    """A packet without its addresses; what its opcode does not have is left at its default.

    One to be refused has all that follows its BTH as ``payload``.
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
    """The headers between BTH and payload. Raises ValueError for an opcode that is not spoken."""
    known = Opcode(opcode)
    if known is Opcode.ACKNOWLEDGE:
        return [AETH]
    return [RETH] * known.begins + [IMMEDIATE] * known.has_immediate


def _extension_fields(opcode: int) -> tuple[Field, ...]:
    return tuple(field for header in extensions(opcode) for field in header)


def header_bytes(opcode: Opcode) -> int:
    """Bytes from the Ethernet header to the payload."""
    return REST_AT + sum(byte_length(fields) for fields in extensions(opcode))


MOST_HEADER_BYTES = max(map(header_bytes, Opcode))


def read_headers(frame: bytes) -> dict[str, int] | None:
    """The fields of BTH and of what the opcode asks for, of a frame of which its beginning is enough.

    None for other traffic, told apart by EtherType, protocol, UDP port and opcode. Nothing else is checked.
    """
    if len(frame) < REST_AT:
        return None
    found = (
        unpack_fields(ETHERNET, frame)["ethertype"],
        unpack_fields(IPV4, frame[IP_AT:])["protocol"],
        unpack_fields(UDP, frame[UDP_AT:])["destination_port"],
    )
    bth = unpack_fields(BTH, frame[BTH_AT:])
    if found != (ETHERTYPE_IPV4, IP_PROTOCOL_UDP, ROCE_PORT) or bth["opcode"] not in set(Opcode):
        return None
    behind = _extension_fields(bth["opcode"])
    if len(frame) < REST_AT + byte_length(behind):
        return None
    return bth | unpack_fields(behind, frame[REST_AT:])


def icrc(frame: bytes) -> int:
    """The invariant CRC of a frame that ends where its ICRC belongs.

    Over a link header of ones, then all from the IPv4 header on, in which ones stand for what a router may
    change.
    """
    covered = bytearray(frame[IP_AT:])
    for at in MUTABLE:
        covered[at] = 0xFF
    return zlib.crc32(LINK_HEADER + covered)


def encode(packet: RdmaPacket, *, source: Endpoint, destination: Endpoint, tos: int = 0) -> bytes:
    """The frame of a packet, without FCS. ``source.port`` may be any; the destination's is 4791."""
    pad = -len(packet.payload) % 4
    names = {f.name: int(getattr(packet, f.name)) for f in BTH if hasattr(packet, f.name)}
    header = pack_fields(BTH, names | {"migration": 1, "pad": pad})
    behind = _extension_fields(packet.opcode)
    header += pack_fields(behind, {f.name: getattr(packet, f.name) for f in behind})
    body = header + packet.payload + bytes(pad)
    to = Endpoint(destination.mac, destination.ip, ROCE_PORT)
    body += bytes(ICRC_BYTES)
    frame = encode_udp(body, source=source, destination=to, tos=tos, flags=DONT_FRAGMENT)[:-ICRC_BYTES]
    return (frame + icrc(frame).to_bytes(ICRC_BYTES, "little")).ljust(MIN_FRAME_BYTES, b"\0")


def decode(frame: bytes) -> RdmaPacket | None:
    """The packet of a frame, or None if there is a :class:`Fault` with it. Nobody's addresses are asked for."""
    found = judge(frame)
    return found if isinstance(found, RdmaPacket) else None


def judge(frame: bytes, *, own: Endpoint | None = None) -> RdmaPacket | Fault:
    """The packet of a frame, or why there is none.

    A packet may be one that is to be refused: its payload is all that follows the BTH. Bytes behind the IPv4
    length are ignored. ``own``: the MAC and IPv4 address that it must be for.
    """
    if len(frame) < UDP_AT:
        return Fault.FOREIGN
    ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[IP_AT:])
    wanted = {"version": 4, "ihl": 5, "protocol": IP_PROTOCOL_UDP, "fragment": 0}
    if (
        ethernet["ethertype"] != ETHERTYPE_IPV4
        or any(ip[name] != value for name, value in wanted.items())
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
    """What becomes of a frame that ends where its ICRC begins, which is ``check``."""
    bth = unpack_fields(BTH, frame[BTH_AT:])
    spoken = bth["opcode"] in set(Opcode)
    behind = _extension_fields(bth["opcode"]) if spoken else ()
    body = frame[REST_AT + byte_length(behind) :]
    too_short = len(frame) < REST_AT + byte_length(behind) + bth["pad"]
    too_long = spoken and len(body) - bth["pad"] > max(PATH_MTUS)
    if icrc(frame).to_bytes(ICRC_BYTES, "little") != check or len(body) % 4 or too_short or too_long:
        return Fault.DAMAGED
    if bth["opcode"] == CONGESTION_NOTICE:
        return Fault.CONGESTION
    if not spoken and bth["opcode"] not in REFUSED_OPCODES:
        return Fault.OPCODE
    if bth["version"] or (bth["partition"] ^ PARTITION) % (1 << PARTITION_BITS):
        return Fault.UNKNOWN
    known = {name: bth[name] for name in ("opcode", "queue_pair", "psn", "partition", "version")}
    fields = unpack_fields(behind, frame[REST_AT:])
    payload = body[: len(body) - bth["pad"]]
    return RdmaPacket(acknowledge=bool(bth["acknowledge"]), payload=payload, **known, **fields)
