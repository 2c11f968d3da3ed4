"""Replies of a node with an IPv4 address outside its own protocol: ARP and ICMP echo."""

from __future__ import annotations

from fanin.wire.arp import ARP, ETHERTYPE_ARP, HARDWARE_ETHERNET, IPV4_BYTES, MAC_BYTES, Operation, encode_arp
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IPV4, MAX_FRAME_BYTES, Endpoint
from fanin.wire.fields import byte_length, pack_fields, unpack_fields
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP, EchoType

MAX_PING = MAX_FRAME_BYTES - 4  #: longest frame that is answered, in bytes without FCS
_IP = byte_length(ETHERNET)
_ICMP = _IP + byte_length(IPV4)
HEADER_BYTES = _ICMP + byte_length(ICMP_ECHO)  #: same length as an ARP packet's frame


def reply(frame: bytes, own: Endpoint) -> bytes | None:
    """Return the reply to a frame, which has the frame's length; None if there is none.

    IPv4's checksum and lengths are not checked. An echo reply has the request's header with addresses swapped:
    a wrong checksum stays wrong.
    """
    if not HEADER_BYTES <= len(frame) <= MAX_PING:
        return None
    ethernet = unpack_fields(ETHERNET, frame)
    if ethernet["ethertype"] == ETHERTYPE_ARP:
        return _arp_reply(frame, own)
    if ethernet["ethertype"] == ETHERTYPE_IPV4 and ethernet["destination"] == own.mac:
        return _echo_reply(frame, own)
    return None


def _arp_reply(frame: bytes, own: Endpoint) -> bytes | None:
    arp = unpack_fields(ARP, frame[_IP:])
    form = tuple(
        arp[name] for name in ("hardware", "protocol", "hardware_bytes", "protocol_bytes", "operation")
    )
    expected = (HARDWARE_ETHERNET, ETHERTYPE_IPV4, MAC_BYTES, IPV4_BYTES, Operation.REQUEST)
    if form != expected or arp["target_ip"] != own.ip:
        return None
    requester = Endpoint(arp["sender_mac"], arp["sender_ip"])
    sender_mac = unpack_fields(ETHERNET, frame)["source"]
    return (
        encode_arp(Operation.REPLY, sender=own, target=requester, destination=sender_mac) + frame[HEADER_BYTES:]
    )


def _echo_reply(frame: bytes, own: Endpoint) -> bytes | None:
    ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[_IP:])
    icmp = unpack_fields(ICMP_ECHO, frame[_ICMP:])
    form = (ip["version"], ip["ihl"], ip["flags"] & 1, ip["fragment"], ip["protocol"], ip["destination"])
    if form != (4, 5, 0, 0, IP_PROTOCOL_ICMP, own.ip) or (icmp["type"], icmp["code"]) != (EchoType.REQUEST, 0):
        return None
    checksum = icmp["checksum"] + (EchoType.REQUEST << 8)
    icmp |= {"type": EchoType.REPLY, "checksum": (checksum + (checksum >> 16)) & 0xFFFF}
    return (
        pack_fields(ETHERNET, ethernet | {"destination": ethernet["source"], "source": own.mac})
        + pack_fields(IPV4, ip | {"source": ip["destination"], "destination": ip["source"]})
        + pack_fields(ICMP_ECHO, icmp)
        + frame[HEADER_BYTES:]
    )
