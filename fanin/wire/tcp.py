"""TCP segments in IPv4 and Ethernet with their checksums: 54 bytes of headers, no options."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_TCP,
    IPV4,
    TCP,
    TTL,
    Endpoint,
    internet_checksum,
)
from fanin.wire.fields import byte_length, pack_fields, unpack_fields

ACK, PSH, SYN = 0x10, 0x08, 0x02  # flags
_IP = byte_length(ETHERNET)
_TCP = _IP + byte_length(IPV4)
_PAYLOAD = _TCP + byte_length(TCP)
_WORDS = byte_length(TCP) // 4


@dataclass(frozen=True)
class Segment:
    """A TCP segment; ``source`` and ``destination`` include the ports."""

    source: Endpoint
    destination: Endpoint
    sequence: int
    acknowledgement: int
    flags: int = ACK
    window: int = 0
    tos: int = 0
    payload: bytes = b""


def encode_tcp(segment: Segment) -> bytes:
    """Return the frame of a segment with correct checksums, without padding and FCS."""
    source, destination = segment.source, segment.destination
    size = byte_length(TCP) + len(segment.payload)
    ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_IPV4}
    ip = {
        "version": 4,
        "ihl": 5,
        "tos": segment.tos,
        "length": byte_length(IPV4) + size,
        "ttl": TTL,
        "protocol": IP_PROTOCOL_TCP,
        "source": source.ip,
        "destination": destination.ip,
    }
    ip["checksum"] = internet_checksum(pack_fields(IPV4, ip))
    tcp = {
        "source_port": source.port,
        "destination_port": destination.port,
        "sequence": segment.sequence,
        "acknowledgement": segment.acknowledgement,
        "offset": _WORDS,
        "flags": segment.flags,
        "window": segment.window,
    }
    covered = _pseudo_header(source.ip, destination.ip, size) + pack_fields(TCP, tcp) + segment.payload
    tcp["checksum"] = internet_checksum(covered)
    return pack_fields(ETHERNET, ethernet) + pack_fields(IPV4, ip) + pack_fields(TCP, tcp) + segment.payload


def decode_tcp(frame: bytes) -> Segment | None:
    """Decode the segment of a frame; None for other traffic, and for wrong lengths or checksums."""
    if len(frame) < _PAYLOAD:
        return None
    ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[_IP:])
    form = (ethernet["ethertype"], ip["version"], ip["ihl"], ip["fragment"], ip["flags"] & 1, ip["protocol"])
    if form != (ETHERTYPE_IPV4, 4, 5, 0, 0, IP_PROTOCOL_TCP) or internet_checksum(frame[_IP:_TCP]):
        return None
    end = _IP + ip["length"]
    tcp = unpack_fields(TCP, frame[_TCP:])
    covered = frame[_TCP:end]
    if not _PAYLOAD <= end <= len(frame) or tcp["offset"] != _WORDS:
        return None
    if internet_checksum(_pseudo_header(ip["source"], ip["destination"], len(covered)) + covered):
        return None
    return Segment(
        source=Endpoint(ethernet["source"], ip["source"], tcp["source_port"]),
        destination=Endpoint(ethernet["destination"], ip["destination"], tcp["destination_port"]),
        sequence=tcp["sequence"],
        acknowledgement=tcp["acknowledgement"],
        flags=tcp["flags"],
        window=tcp["window"],
        tos=ip["tos"],
        payload=frame[_PAYLOAD:end],
    )


def read_headers(frame: bytes) -> dict[str, int] | None:
    """Return the TCP fields of a frame, of which the beginning suffices, with IPv4's ``tos`` and ``payload``.

    ``payload`` is the number of payload bytes on the wire. Returns None for other traffic, recognised by
    EtherType and protocol. Nothing else is checked.
    """
    if len(frame) < _PAYLOAD:
        return None
    ip = unpack_fields(IPV4, frame[_IP:])
    if (unpack_fields(ETHERNET, frame)["ethertype"], ip["protocol"]) != (ETHERTYPE_IPV4, IP_PROTOCOL_TCP):
        return None
    return unpack_fields(TCP, frame[_TCP:]) | {"tos": ip["tos"], "payload": _IP + ip["length"] - _PAYLOAD}


def _pseudo_header(source: int, destination: int, size: int) -> bytes:
    addresses = source.to_bytes(4, "big") + destination.to_bytes(4, "big")
    return addresses + IP_PROTOCOL_TCP.to_bytes(2, "big") + size.to_bytes(2, "big")
