"""NIC stages around INCEPTIONN's codec: their effect on a frame (docs/systems/inceptionn-nic.md; section VI).

Frames are Ethernet without preamble and FCS. Checksums are updated incrementally from the words removed and
added (RFC 1624, equation 3). A checksum that was wrong at the sender, or became wrong on the link, is therefore
still wrong at the receiver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fanin.base.errors import InputError
from fanin.codec.facts import MAX_FRAME, TOS_COMPRESSIBLE, TOS_RAW, Inceptionn
from fanin.codec.golden import inceptionn
from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_TCP,
    IP_PROTOCOL_UDP,
    IPV4,
    MIN_FRAME_BYTES,
    TCP,
    UDP,
    internet_checksum,
)
from fanin.wire.fields import byte_length, pack_fields, unpack_fields

# A compressed payload is the original payload's length, then the codec's *groups* of values and their tags.
LENGTH_BYTES = 2  # bytes of that length
_IP_START = byte_length(ETHERNET)
_TRANSPORT_START = _IP_START + byte_length(IPV4)
_VALUE_BYTES = 4
_PLACEHOLDER = np.float32(np.inf)  # value in place of the tail: the codec sends infinity as four raw bytes


@dataclass(frozen=True)
class _Packet:
    """A frame that may be compressed: UDP or TCP over plain IPv4 with consistent lengths."""

    frame: bytes
    ip: dict[str, int]
    transport: dict[str, int]

    @property
    def is_udp(self) -> bool:
        """True for UDP, False for TCP."""
        return self.ip["protocol"] == IP_PROTOCOL_UDP

    @property
    def start(self) -> int:
        """Offset of the payload in bytes."""
        return _TRANSPORT_START + (byte_length(UDP) if self.is_udp else 4 * self.transport["offset"])

    @cached_property
    def payload(self) -> bytes:
        """Payload of the datagram or segment."""
        return self.frame[self.start : _IP_START + self.ip["length"]]

    def with_tos(self, tos: int) -> bytes:
        """Return the frame with another ToS; everything else, including padding, is unchanged."""
        return self.frame[:_IP_START] + self._ip_header(tos, self.ip["length"]) + self.frame[_TRANSPORT_START:]

    def with_payload(self, payload: bytes) -> bytes:
        """Return the frame with another payload, padded with zeros to 60 bytes."""
        length = self.start - _IP_START + len(payload)
        header = self.frame[:_IP_START] + self._ip_header(self.ip["tos"], length)
        return (header + self._transport_header(payload) + payload).ljust(MIN_FRAME_BYTES, b"\0")

    def _ip_header(self, tos: int, length: int) -> bytes:
        # The version, in the same 16 bits as the ToS, does not change and cancels out.
        replaced = [self.ip["tos"], self.ip["length"]]
        checksum = _update_checksum(self.ip["checksum"], removed=replaced, added=[tos, length])
        return pack_fields(IPV4, self.ip | {"tos": tos, "length": length, "checksum": checksum})

    def _transport_header(self, payload: bytes) -> bytes:
        header = self.frame[_TRANSPORT_START : self.start]
        fields = UDP if self.is_udp else TCP
        # The checksum covers the length once in the pseudo-header, and UDP's also in the header.
        lengths = 2 if self.is_udp else 1
        old_length, new_length = len(header) + len(self.payload), len(header) + len(payload)
        checksum = _update_checksum(
            self.transport["checksum"],
            removed=[_sum(self.payload), *[old_length] * lengths],
            added=[_sum(payload), *[new_length] * lengths],
        )
        values = self.transport | {"checksum": checksum}
        if self.is_udp:
            values["length"] = new_length
            # UDP: 0 means "no checksum" and stays 0. A computed 0 is sent as 0xFFFF (RFC 768).
            has_checksum = self.transport["checksum"] != 0
            values["checksum"] = (checksum or 0xFFFF) if has_checksum else 0
        return pack_fields(fields, values) + header[byte_length(fields) :]


def _sum(data: bytes) -> int:
    """Return the ones' complement sum of the 16-bit words of ``data``."""
    return ~internet_checksum(data) & 0xFFFF


def _update_checksum(checksum: int, *, removed: list[int], added: list[int]) -> int:
    """Return a checksum after words were ``removed`` and ``added`` (RFC 1624, equation 3)."""
    total = (~checksum & 0xFFFF) + sum(~word & 0xFFFF for word in removed) + sum(added)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _parse(frame: bytes) -> _Packet | None:
    """Return the packet in a frame; None if the stages must not touch it, whatever its ToS."""
    if len(frame) < _TRANSPORT_START or unpack_fields(ETHERNET, frame)["ethertype"] != ETHERTYPE_IPV4:
        return None
    ip = unpack_fields(IPV4, frame[_IP_START:])
    fields = {IP_PROTOCOL_UDP: UDP, IP_PROTOCOL_TCP: TCP}.get(ip["protocol"])
    more_fragments = ip["flags"] & 1
    if (ip["version"], ip["ihl"]) != (4, 5) or more_fragments or ip["fragment"] or fields is None:
        return None
    segment = frame[_TRANSPORT_START : _IP_START + ip["length"]]
    if len(frame) < _IP_START + ip["length"] or len(segment) < byte_length(fields):
        return None
    transport = unpack_fields(fields, segment)
    if fields is UDP:
        return _Packet(frame, ip, transport) if transport["length"] == len(segment) else None
    options_fit = byte_length(TCP) <= 4 * transport["offset"] <= len(segment)
    return _Packet(frame, ip, transport) if options_fit else None


def compress_payload(payload: bytes, config: Inceptionn) -> bytes:
    """Return length and groups of a payload; a tail of less than four bytes becomes one more raw value."""
    tail = payload[len(payload) // _VALUE_BYTES * _VALUE_BYTES :]
    values = np.frombuffer(payload[: len(payload) - len(tail)], dtype="<f4").astype(np.float32)
    groups = inceptionn.encode(np.append(values, _PLACEHOLDER) if tail else values, config)
    if tail:  # replace the placeholder, the last four bytes: the zeros that pad its group take no bytes
        groups = groups[:-_VALUE_BYTES] + tail.ljust(_VALUE_BYTES, b"\0")
    return len(payload).to_bytes(LENGTH_BYTES, "big") + groups


def decompress_payload(data: bytes, config: Inceptionn) -> bytes | None:
    """Return the payload; None if the groups hold fewer values than its length says.

    Bytes after the groups are ignored.
    """
    length = int.from_bytes(data[:LENGTH_BYTES], "big")
    value_count = -(-length // _VALUE_BYTES)
    try:
        values, _ = inceptionn.decode_prefix(data[LENGTH_BYTES:], value_count, config)
    except InputError:
        return None
    return values.astype("<f4").tobytes()[:length]


def transmit(frame: bytes, config: Inceptionn, *, max_frame: int = MAX_FRAME) -> bytes | None:
    """Return the frame on the wire for a frame of the host; None: dropped, above ``max_frame`` bytes."""
    if len(frame) > max_frame:
        return None
    packet = _parse(frame)
    if packet is None or packet.ip["tos"] != TOS_COMPRESSIBLE:
        return frame
    data = compress_payload(packet.payload, config)
    return packet.with_payload(data) if len(data) < len(packet.payload) else packet.with_tos(TOS_RAW)


def without_compression(frame: bytes) -> bytes:
    """Return a frame of ToS 0x28 marked to keep its payload; the receiver restores 0x28.

    Every other frame is returned unchanged.
    """
    packet = _parse(frame)
    return frame if packet is None or packet.ip["tos"] != TOS_COMPRESSIBLE else packet.with_tos(TOS_RAW)


def receive(frame: bytes, config: Inceptionn | None = None, *, max_frame: int = MAX_FRAME) -> bytes | None:
    """Return the frame for the host for a frame from the wire; None if it is dropped.

    Dropped are frames longer than ``max_frame`` bytes, and frames whose compressed payload is broken:

    - it ends before its groups do;
    - it is not shorter than the original payload;
    - the original payload does not fit a frame of ``max_frame`` bytes.

    Of ``config`` only the group is used.
    """
    if len(frame) > max_frame:
        return None
    packet = _parse(frame)
    if packet is None or packet.ip["tos"] not in (TOS_COMPRESSIBLE, TOS_RAW):
        return frame
    if packet.ip["tos"] == TOS_RAW:
        return packet.with_tos(TOS_COMPRESSIBLE)
    data = packet.payload
    length = int.from_bytes(data[:LENGTH_BYTES], "big")
    if len(data) <= LENGTH_BYTES or length <= len(data) or packet.start + length > max_frame:
        return None
    payload = decompress_payload(data, config or Inceptionn())
    return None if payload is None else packet.with_payload(payload)
