"""ICMP echo (RFC 792), declared once: requests of ``ping``, and replies."""

from __future__ import annotations

from enum import IntEnum

from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IPV4,
    TTL,
    Endpoint,
    internet_checksum,
)
from fanin.wire.fields import Field, byte_length, pack_fields

IP_PROTOCOL_ICMP = 1


class EchoType(IntEnum):
    """Type of an echo message."""

    REPLY = 0
    REQUEST = 8


ICMP_ECHO = (
    Field("type", 8, "8 request, 0 reply"),
    Field("code", 8, "0"),
    Field("checksum", 16, "of header and data"),
    Field("identifier", 16, "of the request"),
    Field("sequence", 16, "of the request"),
)


def encode_echo(
    kind: EchoType, data: bytes, *, identifier: int, sequence: int, source: Endpoint, destination: Endpoint
) -> bytes:
    """Return the frame of an echo with correct checksums, without padding and FCS."""
    echo = {"type": kind, "identifier": identifier, "sequence": sequence}
    echo["checksum"] = internet_checksum(pack_fields(ICMP_ECHO, echo) + data)
    return encode_icmp(pack_fields(ICMP_ECHO, echo) + data, source=source, destination=destination)


def encode_icmp(message: bytes, *, source: Endpoint, destination: Endpoint) -> bytes:
    """Return a frame with Ethernet and IPv4 headers and a message that has its checksum, without padding and
    FCS.
    """
    ip = {
        "version": 4,
        "ihl": 5,
        "length": byte_length(IPV4) + len(message),
        "ttl": TTL,
        "protocol": IP_PROTOCOL_ICMP,
        "source": source.ip,
        "destination": destination.ip,
    }
    ip["checksum"] = internet_checksum(pack_fields(IPV4, ip))
    ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_IPV4}
    return pack_fields(ETHERNET, ethernet) + pack_fields(IPV4, ip) + message
