"""Frames of the ring all-reduce (docs/systems/ring.md), padded with zeros to whole beats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fanin.wire.ethernet import ETHERNET, Encap
from fanin.wire.fields import Field, byte_length, pack_fields, unpack_fields
from fanin.wire.link import ARRIVED, ETHERTYPE_LINK, LinkFormat, LinkKind

# Version 4 had go-back-N and no bitmap, 3 no checksum of sums, 1 no rank. Connections use versions 2 and 6.
VERSION = 5
SUM_BITS = 16  # checksum of sums; in an answer, ``slice`` is its upper half and ``length`` its lower half
SUM_HISTORY = 16  # number of recent descriptors whose checksum a node remembers

RING = (
    Field("version", 4, "5"),
    Field("kind", 4, "0 DATA, 1 ACK, 2 NAK, 3 PROBE"),
    Field("job", 8, "which ring; a restart takes a new one"),
    Field("nodes", 8, "nodes of the ring"),
    Field("rank", 8, "place of the sender in the ring, 0 first"),
    Field("codec", 4, "0 none, 1 INCEPTIONN, 2 BFP, 3 MX, 4 bfloat16, 5 binary16"),
    Field("tensor", 3, "values in memory: 0 binary32, 1 bfloat16, 2 binary16"),
    Field("complete", 1, "DATA: 1 if the payload is complete sums, 0 if partial sums"),
    Field(
        "slice", 8, "DATA: number of the slice in its segment; ACK and NAK: upper half of the checksum of sums"
    ),
    Field(
        "parameters",
        16,
        "as the codec's file header has them; the lanes without a codec",
    ),
    Field("operation", 8, "modulo 256, DATA: number of the descriptor; ACK and NAK: descriptors stored"),
    Field("length", 8, "DATA: words in the payload when decompressed; ACK and NAK: lower half of the checksum"),
    Field("sequence", 32, "DATA: this frame's, 0 first; ACK and NAK: the next one expected"),
    Field("count", 32, "DATA: values of the operation; ACK and NAK: first sequence number without room"),
)

RING_LINK = LinkFormat(
    fields=RING,
    version=VERSION,
    job=("job",),
    agreed=("nodes", "codec", "parameters", "tensor"),
    data=("operation", "count", "length", "slice", "complete"),
    limit="count",
    sender=("rank",),
    told=("operation", "slice", "length"),
)


@dataclass(frozen=True)
class RingFrame:
    """A frame of the ring. DATA has a ``payload`` of one or more whole beats; answers have ``arrived``."""

    kind: int
    job: int
    nodes: int
    rank: int = 0
    codec: int = 0
    parameters: int = 0
    operation: int = 0
    sequence: int = 0
    count: int = 0
    length: int = 0
    slice: int = 0
    complete: int = 0
    tensor: int = 0
    payload: bytes = b""
    version: int = VERSION
    arrived: int = 0


def encode_ring(frame: RingFrame, *, beat_bytes: int, source: int, destination: int) -> bytes:
    """Return the frame between two MAC addresses, padded with zeros to whole beats, without FCS."""
    ethernet = {"destination": destination, "source": source, "ethertype": ETHERTYPE_LINK}
    data = pack_fields(ETHERNET, ethernet)
    data += pack_fields(RING, {f.name: getattr(frame, f.name) for f in RING})
    data += frame.payload if frame.kind == LinkKind.DATA else pack_fields(ARRIVED, {"arrived": frame.arrived})
    size = RING_LINK.frame_bytes(frame.kind, len(frame.payload), encap=Encap.L2, beat_bytes=beat_bytes)
    return data.ljust(size, b"\0")


def decode_ring(data: bytes, *, beat_bytes: int) -> RingFrame:
    """Decode the ring frame in ``data``, with Ethernet header. Raises ValueError if it is too short.

    A payload of n beats makes a frame of n + 1 beats; with 64-byte beats half of the last one is padding.
    """
    header: dict[str, Any] = unpack_fields(RING, data[byte_length(ETHERNET) :])
    rest = data[RING_LINK.header_bytes(Encap.L2) :]
    if header["kind"] == LinkKind.DATA:
        return RingFrame(payload=rest[: len(data) - beat_bytes], **header)
    return RingFrame(**header | unpack_fields(ARRIVED, rest))
