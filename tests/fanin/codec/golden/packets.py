"""Frames to try the NIC stages on, and scapy's opinion of their lengths and checksums."""

import numpy as np
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from fanin.codec.facts import TOS_COMPRESSIBLE

OPTIONS = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
TRANSPORTS = {
    "udp": lambda: UDP(sport=1000, dport=50_000),
    "udp_no_checksum": lambda: UDP(sport=1000, dport=50_000, chksum=0),
    "tcp": lambda: TCP(sport=1000, dport=50_000, seq=77),
    "tcp_options": lambda: TCP(sport=1000, dport=50_000, seq=77, options=OPTIONS),
    "tcp_all_options": lambda: TCP(sport=1000, dport=50_000, options=[("NOP", None)] * 40),
}


def frame_of(payload, transport="udp", tos=TOS_COMPRESSIBLE):
    packet = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01") / IP(
        src="10.0.0.1", dst="10.0.0.2", tos=tos
    )
    return bytes(packet / TRANSPORTS[transport]() / Raw(payload)).ljust(60, b"\0")


def gradients(length, seed=0):
    """A payload of small values, of any length."""
    values = np.random.default_rng(seed).normal(0, 2e-3, -(-length // 4)).astype("<f4")
    return values.tobytes()[:length]


def rebuilt(frame):
    """The same frame with every length and checksum computed by scapy."""
    packet = Ether(frame)
    transport = packet[UDP] if UDP in packet else packet[TCP]
    no_checksum = UDP in packet and transport.chksum == 0
    body = packet[Raw].load if Raw in packet else b""
    packet[IP].len = packet[IP].chksum = transport.chksum = None
    if UDP in packet:
        transport.len = None
        if no_checksum:
            transport.chksum = 0
    transport.remove_payload()
    whole = bytes(packet[Ether].copy() if not body else packet / Raw(body))
    return whole[: len(frame)].ljust(60, b"\0")


def payload_of(frame):
    packet = Ether(frame)
    return packet[Raw].load if Raw in packet else b""


def _ip(**fields):
    packet = Ether() / IP(src="10.0.0.1", dst="10.0.0.2", tos=TOS_COMPRESSIBLE, **fields)
    return bytes(packet / UDP() / Raw(gradients(200)))


def _changed(at, value, transport="udp"):
    frame = bytearray(frame_of(gradients(200), transport))
    frame[at] = value
    return bytes(frame)


OTHER_TRAFFIC = {
    "other_tos": frame_of(gradients(200), tos=0),
    "arp": bytes(Ether() / ARP()).ljust(60, b"\0"),
    "vlan": bytes(Ether() / Dot1Q(vlan=3) / IP(tos=TOS_COMPRESSIBLE) / UDP() / Raw(gradients(200))),
    "ipv6": _changed(12, 0x86),
    "version": _changed(14, 0x65),
    "ip_options": _changed(14, 0x46),
    "first_fragment": _ip(flags="MF"),
    "later_fragment": _ip(frag=5),
    "icmp": _ip(proto=1),
    "ip_length_beyond_the_frame": _changed(17, 0xFF),
    "ip_length_without_udp_header": _changed(16, 0)[:17] + b"\x1b" + _changed(16, 0)[18:],
    "udp_length_too_small": _changed(39, 0x40),
    "udp_length_too_large": _changed(38, 0x01),
    "tcp_offset_too_small": _changed(46, 0x40, "tcp"),
    "tcp_options_beyond_the_packet": _changed(46, 0xF0, "tcp")[:16]
    + b"\0\x30"
    + _changed(46, 0xF0, "tcp")[18:],
    "cut_off": frame_of(gradients(200))[:100],
    "two_beats_and_no_payload": frame_of(gradients(200))[:42],
    "no_transport_header": frame_of(gradients(200))[:34],
    "short": b"\x45" * 20,
    "one_byte": b"\x28",
}
