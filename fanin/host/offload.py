"""Network card offloads in software: checksums, and segmentation of large sends.

A frame from the other end of a veth pair has no checksum yet, and a TCP send may arrive as one frame of up to
64 KiB. The kernel describes both in virtio's header (Linux, ``include/uapi/linux/virtio_net.h``).
"""

from __future__ import annotations

import struct

from fanin.wire.ethernet import internet_checksum

OFFLOAD = struct.Struct("=BBHHHH")  # flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
OFFLOAD_BYTES = OFFLOAD.size
MAX_SEGMENTS = 256  #: segments of a large send, at most; 64 KiB in IPv4's smallest segments, 536 bytes, are 123
_NEEDS_CHECKSUM = 1
_TCP4, _TCP6, _UDP = 1, 4, 5  # VIRTIO_NET_HDR_GSO_*
_ECN = 0x80
_TCP_PROTOCOL, _UDP_PROTOCOL = 6, 17
_FIN, _PSH, _CWR = 0x01, 0x08, 0x80
_IPV4_AT = 14  # the kernel removes VLAN tags
_MAX_PACKET = 0xFFFF  # bytes of an IP packet that its length field can describe


def wire_frames(offload: bytes, frame: bytes) -> list[bytes]:
    """Return the frames that a wire would carry, at most ``MAX_SEGMENTS``.

    Raises ValueError if the kernel requests another offload, or a sender more or longer segments than a wire
    carries.
    """
    flags, kind, _, size, start, offset = OFFLOAD.unpack(offload)
    kind &= ~_ECN
    if not flags & _NEEDS_CHECKSUM:
        if kind:
            raise ValueError("segments without a checksum")
        return [frame]
    if start + offset + 2 > len(frame):
        raise ValueError("a checksum after the end of the frame")
    if not kind:
        return [_with_checksum(frame, start, offset)]
    if kind not in (_TCP4, _TCP6, _UDP) or not size:
        raise ValueError(f"segments of kind {kind}")
    if start != _transport_at(frame, _UDP_PROTOCOL if kind == _UDP else _TCP_PROTOCOL):
        raise ValueError("segments after other headers than Ethernet and IP")  # a tunnel's
    return _segments(frame, start, offset, size, tcp=kind != _UDP)


def _transport_at(frame: bytes, protocol: int) -> int | None:
    """Return the offset of this protocol's header directly after an IP header; None if it is not there."""
    if len(frame) < _IPV4_AT + 20:
        return None
    version = frame[_IPV4_AT] >> 4
    if version == 4 and frame[_IPV4_AT + 9] == protocol:
        return _IPV4_AT + (frame[_IPV4_AT] & 15) * 4
    if version == 6 and frame[_IPV4_AT + 6] == protocol:
        return _IPV4_AT + 40
    return None


def _with_checksum(frame: bytes, start: int, offset: int) -> bytes:
    """Complete a checksum whose field holds the pseudo-header's sum."""
    position = start + offset
    checksum = internet_checksum(frame[start:])
    return frame[:position] + (checksum or 0xFFFF).to_bytes(2, "big") + frame[position + 2 :]


def _segments(frame: bytes, start: int, offset: int, size: int, *, tcp: bool) -> list[bytes]:
    shortest = start + (20 if tcp else 8)
    if len(frame) <= shortest:
        raise ValueError("segments without a payload")
    header = start + (frame[start + 12] >> 4) * 4 if tcp else shortest
    if not shortest <= header < len(frame):
        raise ValueError(f"segments with a TCP header of {header - start} bytes")
    payload = frame[header:]
    if len(payload) > size * MAX_SEGMENTS:
        raise ValueError(f"{len(payload)} bytes in segments of {size}")
    longest = header + min(size, len(payload)) - _IPV4_AT
    if longest > _MAX_PACKET:
        raise ValueError(f"a segment of {longest} bytes: an IP packet has at most {_MAX_PACKET}")
    segments = []
    for number, begin in enumerate(range(0, len(payload), size)):
        part = payload[begin : begin + size]
        headers = bytearray(frame[:header])
        _shorten(headers, start, offset, header + len(part), number)
        if tcp:
            sequence = (int.from_bytes(headers[start + 4 : start + 8], "big") + begin) & 0xFFFFFFFF
            headers[start + 4 : start + 8] = sequence.to_bytes(4, "big")
            if begin + size < len(payload):
                headers[start + 13] &= ~(_FIN | _PSH)
            if begin:
                headers[start + 13] &= ~_CWR
        segments.append(_with_checksum(bytes(headers) + part, start, offset))
    return segments


def _shorten(headers: bytearray, start: int, offset: int, length: int, number: int) -> None:
    """Set lengths, identification and pseudo-header sum of one segment of ``length`` bytes."""
    old_sum = int.from_bytes(headers[start + offset : start + offset + 2], "big")
    old_length = _length_in_pseudo_header(headers, start)
    if headers[_IPV4_AT] >> 4 == 4:
        headers[_IPV4_AT + 2 : _IPV4_AT + 4] = (length - _IPV4_AT).to_bytes(2, "big")
        identification = (int.from_bytes(headers[_IPV4_AT + 4 : _IPV4_AT + 6], "big") + number) & 0xFFFF
        headers[_IPV4_AT + 4 : _IPV4_AT + 6] = identification.to_bytes(2, "big")
        headers[_IPV4_AT + 10 : _IPV4_AT + 12] = bytes(2)
        header_checksum = internet_checksum(bytes(headers[_IPV4_AT : _IPV4_AT + (headers[_IPV4_AT] & 15) * 4]))
        headers[_IPV4_AT + 10 : _IPV4_AT + 12] = header_checksum.to_bytes(2, "big")
    else:
        headers[_IPV4_AT + 4 : _IPV4_AT + 6] = (length - _IPV4_AT - 40).to_bytes(2, "big")
    if offset == 6:  # UDP
        headers[start + 4 : start + 6] = (length - start).to_bytes(2, "big")
    # In one's complement, adding ~x subtracts x: the old length is replaced by the new one.
    new_sum = old_sum + (~old_length & 0xFFFF) + (length - start)
    while new_sum >> 16:
        new_sum = (new_sum & 0xFFFF) + (new_sum >> 16)
    headers[start + offset : start + offset + 2] = new_sum.to_bytes(2, "big")


def _length_in_pseudo_header(headers: bytearray, start: int) -> int:
    """Return the bytes from the transport header on, according to the large send's IP header."""
    if headers[_IPV4_AT] >> 4 == 4:
        return _IPV4_AT + int.from_bytes(headers[_IPV4_AT + 2 : _IPV4_AT + 4], "big") - start
    return _IPV4_AT + 40 + int.from_bytes(headers[_IPV4_AT + 4 : _IPV4_AT + 6], "big") - start
