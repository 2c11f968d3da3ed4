"""ARP for IPv4 on Ethernet (RFC 826), declared once: requests for an address, and replies."""

from __future__ import annotations

from enum import IntEnum

from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, Endpoint
from fanin.wire.fields import Field, pack_fields

ETHERTYPE_ARP = 0x0806
BROADCAST = 0xFFFF_FFFF_FFFF
HARDWARE_ETHERNET = 1
MAC_BYTES, IPV4_BYTES = 6, 4


class Operation(IntEnum):
    """Kind of an ARP packet."""

    REQUEST = 1
    REPLY = 2


ARP = (
    Field("hardware", 16, "1: Ethernet"),
    Field("protocol", 16, "0x0800: IPv4"),
    Field("hardware_bytes", 8, "6"),
    Field("protocol_bytes", 8, "4"),
    Field("operation", 16, "1 request, 2 reply"),
    Field("sender_mac", 48, "of the sender"),
    Field("sender_ip", 32, "of the sender; 0: it probes whether the address is in use"),
    Field("target_mac", 48, "request: 0, ignored; reply: of the requester"),
    Field("target_ip", 32, "request: the address in question; reply: of the requester"),
)


def encode_arp(
    operation: Operation, *, sender: Endpoint, target: Endpoint, destination: int = BROADCAST
) -> bytes:
    """Return the frame to the MAC address ``destination``, without padding and FCS."""
    ethernet = {"destination": destination, "source": sender.mac, "ethertype": ETHERTYPE_ARP}
    arp = {
        "hardware": HARDWARE_ETHERNET,
        "protocol": ETHERTYPE_IPV4,
        "hardware_bytes": MAC_BYTES,
        "protocol_bytes": IPV4_BYTES,
        "operation": operation,
        "sender_mac": sender.mac,
        "sender_ip": sender.ip,
        "target_mac": target.mac,
        "target_ip": target.ip,
    }
    return pack_fields(ETHERNET, ethernet) + pack_fields(ARP, arp)
