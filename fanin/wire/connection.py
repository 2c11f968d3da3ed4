"""Frames of a connection between two devices of a CNN cluster (docs/systems/link.md, "A connection")."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from fanin.wire.ethernet import (
    AROUND_FRAME,
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    Encap,
    Endpoint,
    encode_udp,
    internet_checksum,
)
from fanin.wire.fields import Field, byte_length, pack_fields, unpack_fields
from fanin.wire.link import ARRIVED, ETHERTYPE_LINK, LINK_PORT, MAX_FRAMES, TOS_SHIFT, LinkFormat, LinkKind

# Version 2 had go-back-N and no bitmap. The ring uses other versions on the same EtherType.
VERSION = 6
WORD_BYTES = 4
MAX_PAYLOAD_BYTES = 1408  # less than 1,500 with all headers, in whole beats of 64
MIN_PAYLOAD_BYTES = 32  # a frame is then at least as long as Ethernet's shortest
MAX_PAYLOAD_WORDS = MAX_PAYLOAD_BYTES // WORD_BYTES
IN_FLIGHT_BYTES = 8 * MAX_PAYLOAD_BYTES  # covers a round trip of 2.2 µs at 40 Gb/s
MAC_WIDTH = 512  # default bits of a beat at a device's MAC

CONNECTION = (
    Field("version", 4, "6"),
    Field("kind", 4, "0 DATA, 1 ACK, 2 NAK, 3 PROBE"),
    Field("connection", 8, "which connection of the run"),
    Field("run", 16, "which run; a restart takes a new one"),
    Field("words", 16, "DATA: words of the payload, 1 to 352"),
    Field("sequence", 32, "DATA: this frame's, 0 first; ACK and NAK: the next one expected"),
    Field("limit", 32, "ACK and NAK: first sequence number without room"),
    Field("frame", 32, "DATA: of which feature map or gradient the words are, 0 first"),
)
CONNECTION_LINK = LinkFormat(
    fields=CONNECTION,
    version=VERSION,
    job=("run", "connection"),
    agreed=(),
    data=("words", "frame"),
    limit="limit",
)


@dataclass(frozen=True)
class RowFrames:
    """Division of a row of ``row`` words into frames, on beats of ``data_width`` bits."""

    row: int
    data_width: int

    @property
    def beats(self) -> int:
        """Beats of a row, padded to whole beats and to the shortest payload."""
        unit = max(self.data_width // 8, MIN_PAYLOAD_BYTES)
        return -(-self.row * WORD_BYTES // unit) * unit * 8 // self.data_width

    @property
    def frame_beats(self) -> int:
        """Beats of the longest frame's payload."""
        return min(8 * MAX_PAYLOAD_BYTES // self.data_width, self.beats)

    @property
    def frames(self) -> int:
        """Frames of a row."""
        return -(-self.beats // self.frame_beats)

    @property
    def payloads(self) -> tuple[int, ...]:
        """Bytes of each frame's payload, with padding; all are equal except the last."""
        beats = (*(self.frames - 1) * (self.frame_beats,), self.beats - (self.frames - 1) * self.frame_beats)
        return tuple(payload_beats * self.data_width // 8 for payload_beats in beats)

    def wire_bytes(self, encap: Encap = Encap.L2) -> tuple[int, ...]:
        """Return the bytes that each frame of a row takes on the link, including preamble, FCS and gap."""
        beat_bytes = self.data_width // 8
        return tuple(
            CONNECTION_LINK.frame_bytes(LinkKind.DATA, payload, encap=encap, beat_bytes=beat_bytes)
            + AROUND_FRAME
            for payload in self.payloads
        )

    @property
    def in_flight(self) -> int:
        """Frames in flight: the power of two that covers ``IN_FLIGHT_BYTES`` of a row's average frames."""
        frame_count = -(-8 * IN_FLIGHT_BYTES * self.frames // (self.beats * self.data_width))
        return min(max(2, 1 << (frame_count - 1).bit_length()), MAX_FRAMES)


@dataclass(frozen=True)
class ConnectionFrame:
    """A frame of a connection.

    - ``words``: payload of a DATA frame, each word the bits of a binary32 number.
    - ``arrived``: bitmap of an ACK or NAK.
    """

    kind: int
    run: int
    connection: int
    sequence: int = 0
    limit: int = 0
    frame: int = 0
    words: tuple[int, ...] = ()
    version: int = VERSION
    arrived: int = 0


def encode_connection(
    frame: ConnectionFrame,
    *,
    beat_bytes: int,
    source: Endpoint,
    destination: Endpoint,
    encap: Encap = Encap.L2,
    priority: int = 0,
) -> bytes:
    """Return the frame without FCS; its payload is padded with zeros to whole beats and to 32 bytes.

    ``priority``, 0 to 7, is the upper three bits of UDP's type of service; raw Ethernet does not carry it.
    """
    words = struct.pack(f"<{len(frame.words)}I", *frame.words)
    unit = max(beat_bytes, MIN_PAYLOAD_BYTES)
    payload = words.ljust(-(-len(words) // unit) * unit, b"\0")
    values = {f.name: getattr(frame, f.name) for f in CONNECTION} | {"words": len(frame.words)}
    size = CONNECTION_LINK.frame_bytes(frame.kind, len(payload), encap=encap, beat_bytes=beat_bytes)
    header = pack_fields(CONNECTION, values)
    if frame.kind != LinkKind.DATA:
        header += pack_fields(ARRIVED, {"arrived": frame.arrived})
    if encap is Encap.L2:
        ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_LINK}
        return (pack_fields(ETHERNET, ethernet) + header + payload).ljust(size, b"\0")
    header_offset = CONNECTION_LINK.header_at(encap)
    link_data = header.ljust(CONNECTION_LINK.header_bytes(encap) - header_offset, b"\0") + payload
    source, destination = replace(source, port=LINK_PORT), replace(destination, port=LINK_PORT)
    datagram = link_data.ljust(size - header_offset, b"\0")
    return encode_udp(datagram, source=source, destination=destination, tos=priority << TOS_SHIFT)


def decode_connection(data: bytes) -> ConnectionFrame | None:
    """Decode the frame in ``data``, with Ethernet header; None for other traffic and truncated frames."""
    if len(data) < byte_length(ETHERNET):
        return None
    ethertype = unpack_fields(ETHERNET, data)["ethertype"]
    encap = {ETHERTYPE_LINK: Encap.L2, ETHERTYPE_IPV4: Encap.UDP}.get(ethertype)
    if encap is None or len(data) < CONNECTION_LINK.header_bytes(encap):
        return None
    if encap is Encap.UDP and not _to_link_port(data[byte_length(ETHERNET) :]):
        return None
    header_data = data[CONNECTION_LINK.header_at(encap) :]
    header = unpack_fields(CONNECTION, header_data)
    begin, count = CONNECTION_LINK.header_bytes(encap), header.pop("words")
    if header["version"] != VERSION or len(data) < begin + WORD_BYTES * count:
        return None
    if header["kind"] != LinkKind.DATA:
        if len(header_data) < byte_length(CONNECTION + ARRIVED):
            return None
        header |= unpack_fields(ARRIVED, header_data[byte_length(CONNECTION) :])
    return ConnectionFrame(words=struct.unpack_from(f"<{count}I", data, begin), **header)


def _to_link_port(packet: bytes) -> bool:
    """Return whether an IP packet is a complete UDP packet to the link's port with a correct header
    checksum.
    """
    ip, udp = unpack_fields(IPV4, packet), unpack_fields(UDP, packet[byte_length(IPV4) :])
    form = (ip["version"], ip["ihl"], ip["flags"] & 1, ip["fragment"], ip["protocol"])
    valid = form == (4, 5, 0, 0, IP_PROTOCOL_UDP) and internet_checksum(packet[: byte_length(IPV4)]) == 0
    return valid and ip["length"] <= len(packet) and udp["destination_port"] == LINK_PORT
