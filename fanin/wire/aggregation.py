"""Aggregation packet, declared once for RTL, P4, Python, tests and docs.

Contract: docs/reference/aggregation-packet.md, docs/systems/aggregation.md. Frames are padded with zeros to
60 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from fanin.wire.ethernet import ETHERNET, IPV4, MIN_FRAME_BYTES, UDP, Encap, Endpoint, encode_udp
from fanin.wire.fields import Field, byte_length, pack_fields, unpack_fields

ETHERTYPE_AGGREGATION = 0x88B5  # IEEE 802 local experimental
VERSION = 1
VALUE_BITS = 32
DEFAULT_VALUES = 8
MAX_VALUES = 32  # per packet at a switch; the largest number tested on both targets
MAX_WORKERS = 32  # one bit each in the header's bitmap
ROUND_MAX = 2**32 - 1


class Kind(IntEnum):
    """Kind of a packet: partial activations up, full activations down, and their two acknowledgements."""

    AGG = 0
    RESULT = 1
    ACK = 2
    CONFIRM = 3


class Protocol(StrEnum):
    """Condition that frees a slot for its next round; all else is common (docs/systems/aggregation.md)."""

    P4SGD = "p4sgd"  # all members have acknowledged the slot's RESULT
    SWITCHML = "switchml"  # an operation one window later has its RESULT: the baseline

    @property
    def acknowledges(self) -> bool:
        """True if the protocol has ACK and CONFIRM."""
        return self is Protocol.P4SGD

    @property
    def slots_per_operation(self) -> int:
        """Slots of a job per operation that a worker may have in flight."""
        return 1 if self.acknowledges else 2

    @property
    def to_switch(self) -> tuple[Kind, ...]:
        """Kinds that a worker sends; other kinds are malformed."""
        return (Kind.AGG, Kind.ACK) if self.acknowledges else (Kind.AGG,)

    @property
    def to_worker(self) -> tuple[Kind, ...]:
        """Kinds that the switch sends; other kinds are malformed."""
        return (Kind.RESULT, Kind.CONFIRM) if self.acknowledges else (Kind.RESULT,)


AGGREGATION = (
    Field("version", 4, "1"),
    Field("kind", 4, "0 AGG (PA to the switch), 1 RESULT (FA to the workers), 2 ACK, 3 CONFIRM"),
    Field("job", 8, "which training job"),
    Field("slot", 16, "aggregation slot, absolute in the switch"),
    Field("round", 32, "how often the slot was used; the first use is 1, 0 is malformed"),
    Field("bitmap", 32, "one-hot: the worker; in RESULT and CONFIRM all members"),
)


def payload_length(values: int = DEFAULT_VALUES) -> int:
    """Return the bytes of aggregation header and values."""
    return byte_length(AGGREGATION) + values * VALUE_BITS // 8


def header_length(encap: Encap) -> int:
    """Return the bytes before the aggregation header."""
    length = byte_length(ETHERNET)
    return length + byte_length(IPV4) + byte_length(UDP) if encap is Encap.UDP else length


def frame_length(encap: Encap, values: int = DEFAULT_VALUES) -> int:
    """Return the bytes of a frame, with padding, without FCS."""
    return max(MIN_FRAME_BYTES, header_length(encap) + payload_length(values))


@dataclass(frozen=True)
class AggPacket:
    """An aggregation packet without its encapsulation; ``values`` are signed 32-bit integers."""

    kind: int
    job: int
    slot: int
    round: int
    bitmap: int
    values: tuple[int, ...] = field(default=(0,) * DEFAULT_VALUES)
    version: int = VERSION


def encode_payload(packet: AggPacket) -> bytes:
    """Return aggregation header and values as bytes."""
    header = {f.name: getattr(packet, f.name) for f in AGGREGATION}
    return pack_fields(AGGREGATION, header) + struct.pack(f">{len(packet.values)}i", *packet.values)


def encode(packet: AggPacket, *, encap: Encap, source: Endpoint, destination: Endpoint) -> bytes:
    """Return the frame of a packet, padded with zeros to 60 bytes, without FCS."""
    payload = encode_payload(packet)
    if encap is Encap.L2:
        ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_AGGREGATION}
        frame = pack_fields(ETHERNET, ethernet) + payload
    else:
        frame = encode_udp(payload, source=source, destination=destination)
    return frame.ljust(MIN_FRAME_BYTES, b"\0")


def decode_payload(data: bytes, values: int = DEFAULT_VALUES) -> AggPacket:
    """Decode aggregation header and values at the start of ``data``. Raises ValueError if it is too short."""
    if len(data) < payload_length(values):
        raise ValueError(f"payload needs {payload_length(values)} bytes, not {len(data)}")
    header = unpack_fields(AGGREGATION, data)
    offset = byte_length(AGGREGATION)
    numbers = struct.unpack_from(f">{values}i", data, offset)
    return AggPacket(values=numbers, **header)
