"""Ethernet, IPv4, UDP and TCP as fanin's packets use them. A frame has neither preamble nor FCS."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum

from fanin.wire.fields import Field, byte_length, pack_fields

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_VLAN = 0x8100
IP_PROTOCOL_TCP = 6
IP_PROTOCOL_UDP = 17
UDP_PORT = 34997
MIN_FRAME_BYTES = 60  # without FCS
MAX_FRAME_BYTES = 2000  # with FCS: IEEE 802.3's longest frame, the envelope frame
PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES = 8, 4, 12
AROUND_FRAME = PREAMBLE_BYTES + FCS_BYTES + GAP_BYTES  # bytes of link time per frame, in addition to the frame
TTL = 64
DONT_FRAGMENT = 0b010  # in the IPv4 flags

ETHERNET = (
    Field("destination", 48, "destination MAC"),
    Field("source", 48, "source MAC"),
    Field("ethertype", 16, "0x88B5 aggregation, 0x0800 IPv4"),
)
TCI = (
    Field("priority", 3, "class of the frame, 0 to 7"),
    Field("drop_eligible", 1, "0"),
    Field("vlan", 12, "number of the VLAN; 0: none, the tag says the priority only"),
)
VLAN_TAG = (Field("protocol", 16, "0x8100"), *TCI)
TAG_AT = 12  # offset of the tag in a frame, after both addresses
IPV4 = (
    Field("version", 4, "4"),
    Field("ihl", 4, "5: options are other traffic"),
    Field("tos", 8, "0"),
    Field("length", 16, "bytes from here to the end of the values"),
    Field("identification", 16, "0"),
    Field("flags", 3, "0"),
    Field("fragment", 13, "0: fragments are other traffic"),
    Field("ttl", 8, str(TTL)),
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


class Encap(StrEnum):
    """Encapsulation of a fanin header: raw Ethernet, or UDP over IPv4."""

    L2 = "l2"
    UDP = "udp"


@dataclass(frozen=True)
class Endpoint:
    """Addresses of one end: 48-bit MAC, 32-bit IPv4 address, UDP port."""

    mac: int
    ip: int = 0
    port: int = UDP_PORT


def internet_checksum(data: bytes) -> int:
    """Return the ones' complement sum of 16-bit words (RFC 1071); 0 over a header with a correct checksum."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tagged(frame: bytes, *, vlan: int, priority: int = 0) -> bytes:
    """Return the frame with an 802.1Q tag. Raises ValueError for numbers out of range."""
    tag = pack_fields(VLAN_TAG, {"protocol": ETHERTYPE_VLAN, "priority": priority, "vlan": vlan})
    return frame[:TAG_AT] + tag + frame[TAG_AT:]


def untagged(frame: bytes) -> bytes:
    """Return the frame without its outer 802.1Q tag, if any."""
    if frame[TAG_AT : TAG_AT + 2] != ETHERTYPE_VLAN.to_bytes(2, "big"):
        return frame
    return frame[:TAG_AT] + frame[TAG_AT + byte_length(VLAN_TAG) :]


def encode_udp(
    payload: bytes, *, source: Endpoint, destination: Endpoint, tos: int = 0, flags: int = 0
) -> bytes:
    """Return a frame with Ethernet, IPv4 and UDP (checksum 0: none) headers, without padding and FCS."""
    udp_length = byte_length(UDP) + len(payload)
    ethernet = {"destination": destination.mac, "source": source.mac, "ethertype": ETHERTYPE_IPV4}
    ip = {
        "version": 4,
        "ihl": 5,
        "tos": tos,
        "length": byte_length(IPV4) + udp_length,
        "flags": flags,
        "ttl": TTL,
        "protocol": IP_PROTOCOL_UDP,
        "source": source.ip,
        "destination": destination.ip,
    }
    ip["checksum"] = internet_checksum(pack_fields(IPV4, ip))
    udp = {"source_port": source.port, "destination_port": destination.port, "length": udp_length}
    return pack_fields(ETHERNET, ethernet) + pack_fields(IPV4, ip) + pack_fields(UDP, udp) + payload


def mac_text(mac: int) -> str:
    """Return a MAC address as text, with colons."""
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6, "big"))
