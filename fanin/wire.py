"""The aggregation packet and the ring's header: declared once, for RTL, P4, Python, tests and docs.

Contract: docs/packet.md, docs/protocol.md, docs/ring.md. Everything is in network byte order. A frame is
Ethernet without preamble and without FCS, padded with zeros: to 60 bytes, the ring's to whole beats.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

ETHERTYPE_AGGREGATION = 0x88B5  # IEEE 802 local experimental
ETHERTYPE_RING = 0x88B6  # likewise
ETHERTYPE_IPV4 = 0x0800
IP_PROTOCOL_TCP = 6
IP_PROTOCOL_UDP = 17
UDP_PORT = 34997
VERSION = 1
VALUE_BITS = 32
DEFAULT_VALUES = 8
MAX_WORKERS = 32
MIN_FRAME_BYTES = 60  # without FCS
ROUND_MAX = 2**32 - 1


class Kind(IntEnum):
    """What a packet is: partial activations up, full activations down, and their two acknowledgements."""

    AGG = 0
    RESULT = 1
    ACK = 2
    CONFIRM = 3


class RingKind(IntEnum):
    """What a frame of the ring is: words for the node behind, its two answers, and the question for one."""

    DATA = 0
    ACK = 1
    NAK = 2
    PROBE = 3


class Protocol(StrEnum):
    """What frees a slot for its next round; everything else is common (docs/protocol.md)."""

    P4SGD = "p4sgd"  # that all members have acknowledged its RESULT
    SWITCHML = "switchml"  # that as many operations behind it have their RESULT: the baseline

    @property
    def acknowledges(self) -> bool:
        """Whether there are ACK and CONFIRM."""
        return self is Protocol.P4SGD

    @property
    def slots_per_operation(self) -> int:
        """Slots of a job for each operation that a worker may have in flight."""
        return 1 if self.acknowledges else 2

    @property
    def to_switch(self) -> tuple[Kind, ...]:
        """What a worker sends; any other kind is malformed."""
        return (Kind.AGG, Kind.ACK) if self.acknowledges else (Kind.AGG,)

    @property
    def to_worker(self) -> tuple[Kind, ...]:
        """What the switch sends; any other kind is malformed."""
        return (Kind.RESULT, Kind.CONFIRM) if self.acknowledges else (Kind.RESULT,)


class Encap(StrEnum):
    """How the aggregation header travels: raw Ethernet or UDP over IPv4."""

    L2 = "l2"
    UDP = "udp"


@dataclass(frozen=True)
class Field:
    """One header field: ``bits`` wide, most significant bit first on the wire."""

    name: str
    bits: int
    meaning: str


ETHERNET = (
    Field("destination", 48, "destination MAC"),
    Field("source", 48, "source MAC"),
    Field("ethertype", 16, "0x88B5 aggregation, 0x0800 IPv4"),
)
IPV4 = (
    Field("version", 4, "4"),
    Field("ihl", 4, "5: options are other traffic"),
    Field("tos", 8, "0"),
    Field("length", 16, "bytes from here to the end of the values"),
    Field("identification", 16, "0"),
    Field("flags", 3, "0"),
    Field("fragment", 13, "0: fragments are other traffic"),
    Field("ttl", 8, "64"),
    Field("protocol", 8, "17, UDP"),
    Field("checksum", 16, "of the 20 header bytes"),
    Field("source", 32, "source address"),
    Field("destination", 32, "destination address"),
)
UDP = (
    Field("source_port", 16, "34997"),
    Field("destination_port", 16, "34997"),
    Field("length", 16, "8 + aggregation bytes"),
    Field("checksum", 16, "0: none"),
)
TCP = (
    Field("source_port", 16, "as the host sent it"),
    Field("destination_port", 16, "as the host sent it"),
    Field("sequence", 32, "of the payload before compression"),
    Field("acknowledgement", 32, "as the host sent it"),
    Field("offset", 4, "words of the header, options among them: 5 to 15"),
    Field("flags", 12, "as the host sent it"),
    Field("window", 16, "as the host sent it"),
    Field("checksum", 16, "of pseudo-header, header and payload"),
    Field("urgent", 16, "as the host sent it"),
)
AGGREGATION = (
    Field("version", 4, "1"),
    Field("kind", 4, "0 AGG (PA to the switch), 1 RESULT (FA to the workers), 2 ACK, 3 CONFIRM"),
    Field("job", 8, "which training job"),
    Field("slot", 16, "aggregation slot, absolute in the switch"),
    Field("round", 32, "how often the slot was used; the first use is 1, 0 is malformed"),
    Field("bitmap", 32, "one-hot: the worker; in RESULT and CONFIRM all members"),
)

RING = (
    Field("version", 4, "1"),
    Field("kind", 4, "0 DATA, 1 ACK, 2 NAK, 3 PROBE"),
    Field("job", 8, "which ring; a restart takes a new one"),
    Field("nodes", 8, "nodes of the ring"),
    Field("codec", 8, "0 none, 1 INCEPTIONN, 2 BFP"),
    Field("parameters", 16, "bound and mode; block and mantissa; lanes, as the codec's file header has them"),
    Field("operation", 16, "DATA: number of the descriptor"),
    Field("sequence", 32, "DATA: this frame's, 0 first; ACK and NAK: the next one expected"),
    Field("count", 32, "DATA: values of the operation; ACK and NAK: first sequence number without room"),
    Field("length", 16, "DATA: words in the payload when decompressed"),
)


def byte_length(fields: Sequence[Field]) -> int:
    """Length of a header in bytes."""
    return sum(f.bits for f in fields) // 8


def field_bits(fields: Sequence[Field], name: str) -> int:
    """Width of a header's field."""
    return next(f.bits for f in fields if f.name == name)


def pack_fields(fields: Sequence[Field], values: dict[str, int]) -> bytes:
    """Pack one header; fields that ``values`` does not name are 0."""
    word = 0
    for f in fields:
        value = values.get(f.name, 0)
        if not 0 <= value < 1 << f.bits:
            raise ValueError(f"{f.name} must fit {f.bits} bits, not {value!r}")
        word = word << f.bits | value
    return word.to_bytes(byte_length(fields), "big")


def unpack_fields(fields: Sequence[Field], data: bytes) -> dict[str, int]:
    """Unpack one header from the start of ``data``, which must hold at least its length."""
    size = byte_length(fields)
    if len(data) < size:
        raise ValueError(f"header needs {size} bytes, not {len(data)}")
    word = int.from_bytes(data[:size], "big")
    out = {}
    for f in reversed(fields):
        out[f.name] = word & ((1 << f.bits) - 1)
        word >>= f.bits
    return out


def payload_length(values: int = DEFAULT_VALUES) -> int:
    """Bytes of aggregation header and values."""
    return byte_length(AGGREGATION) + values * VALUE_BITS // 8


def header_length(encap: Encap) -> int:
    """Bytes in front of the aggregation header."""
    length = byte_length(ETHERNET)
    return length + byte_length(IPV4) + byte_length(UDP) if encap is Encap.UDP else length


def frame_length(encap: Encap, values: int = DEFAULT_VALUES) -> int:
    """Bytes of a whole frame, padding included, FCS not."""
    return max(MIN_FRAME_BYTES, header_length(encap) + payload_length(values))


@dataclass(frozen=True)
class Endpoint:
    """Addresses of one end: 48-bit MAC, 32-bit IPv4 address, UDP port."""

    mac: int
    ip: int = 0
    port: int = UDP_PORT


@dataclass(frozen=True)
class Packet:
    """An aggregation packet without its encapsulation; ``values`` are signed 32-bit integers."""

    kind: int
    job: int
    slot: int
    round: int
    bitmap: int
    values: tuple[int, ...] = field(default=(0,) * DEFAULT_VALUES)
    version: int = VERSION


def internet_checksum(data: bytes) -> int:
    """Ones' complement sum of 16-bit words (RFC 1071); 0 over a header with a right checksum."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def encode_payload(packet: Packet) -> bytes:
    """Aggregation header and values."""
    names = {f.name: getattr(packet, f.name) for f in AGGREGATION}
    return pack_fields(AGGREGATION, names) + struct.pack(f">{len(packet.values)}i", *packet.values)


def encode_udp(payload: bytes, *, source: Endpoint, destination: Endpoint) -> bytes:
    """Ethernet, IPv4 and UDP (checksum 0: none) in front of a payload, without padding and FCS."""
    udp_length = byte_length(UDP) + len(payload)
    ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_IPV4}
    ip = {
        "version": 4,
        "ihl": 5,
        "length": byte_length(IPV4) + udp_length,
        "ttl": 64,
        "protocol": IP_PROTOCOL_UDP,
        "source": source.ip,
        "destination": destination.ip,
    }
    ip["checksum"] = internet_checksum(pack_fields(IPV4, ip))
    udp = {"source_port": source.port, "destination_port": destination.port, "length": udp_length}
    return pack_fields(ETHERNET, ethernet) + pack_fields(IPV4, ip) + pack_fields(UDP, udp) + payload


def encode(packet: Packet, *, encap: Encap, source: Endpoint, destination: Endpoint) -> bytes:
    """The frame of a packet, zero-padded to 60 bytes, without FCS."""
    payload = encode_payload(packet)
    if encap is Encap.L2:
        ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_AGGREGATION}
        frame = pack_fields(ETHERNET, ethernet) + payload
    else:
        frame = encode_udp(payload, source=source, destination=destination)
    return frame.ljust(MIN_FRAME_BYTES, b"\0")


def decode_payload(data: bytes, values: int = DEFAULT_VALUES) -> Packet:
    """Aggregation header and values from the start of ``data``. Raises ValueError when it is too short."""
    if len(data) < payload_length(values):
        raise ValueError(f"payload needs {payload_length(values)} bytes, not {len(data)}")
    header = unpack_fields(AGGREGATION, data)
    offset = byte_length(AGGREGATION)
    numbers = struct.unpack_from(f">{values}i", data, offset)
    return Packet(values=numbers, **header)


RING_HEADER_BYTES = byte_length(ETHERNET) + byte_length(RING)
RING_CONTROL_BYTES = 64  # of all kinds but DATA, zeros behind the header


@dataclass(frozen=True)
class RingFrame:
    """A frame of the ring; only DATA has a ``payload``, at least one beat and whole beats."""

    kind: int
    job: int
    nodes: int
    codec: int = 0
    parameters: int = 0
    operation: int = 0
    sequence: int = 0
    count: int = 0
    length: int = 0
    payload: bytes = b""
    version: int = VERSION


def encode_ring(frame: RingFrame, *, beat_bytes: int, source: int, destination: int) -> bytes:
    """The frame between two MAC addresses, padded with zeros to whole beats, without FCS."""
    ethernet = {"destination": destination, "source": source, "ethertype": ETHERTYPE_RING}
    data = pack_fields(ETHERNET, ethernet)
    data += pack_fields(RING, {f.name: getattr(frame, f.name) for f in RING}) + frame.payload
    return data.ljust(max(-(-len(data) // beat_bytes) * beat_bytes, RING_CONTROL_BYTES), b"\0")


def decode_ring(data: bytes, *, beat_bytes: int) -> RingFrame:
    """The frame of the ring in ``data``, Ethernet header included. Raises ValueError when it is too short.

    A payload of n beats makes a frame of n + 1: with 64-byte beats the last one is half padding.
    """
    header = unpack_fields(RING, data[byte_length(ETHERNET) :])
    size = len(data) - beat_bytes if header["kind"] == RingKind.DATA else 0
    return RingFrame(payload=data[RING_HEADER_BYTES : RING_HEADER_BYTES + size], **header)
