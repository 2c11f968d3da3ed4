"""TCP segments: what scapy reads in ours, what we read in scapy's, and what is damaged or other traffic."""

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.job import worker_endpoint
from fanin.wire.tcp import ACK, PSH, Segment, decode_tcp, encode_tcp

SEGMENT = Segment(
    worker_endpoint(0),
    worker_endpoint(1),
    sequence=0xFFFF_FFF0,
    acknowledgement=77,
    flags=ACK | PSH,
    window=46_720,
    tos=0x28,
    payload=bytes(range(101)),
)


def test_scapy_reads_our_segment_and_agrees_with_its_checksums():
    frame = encode_tcp(SEGMENT)
    read = Ether(frame)
    assert (read.src, read.dst) == ("02:00:00:00:00:01", "02:00:00:00:00:02")
    assert (read[IP].src, read[IP].dst, read[IP].tos) == ("10.0.0.1", "10.0.0.2", 0x28)
    assert (read[TCP].sport, read[TCP].seq, read[TCP].ack) == (34997, 0xFFFF_FFF0, 77)
    assert (read[TCP].flags, read[TCP].window, bytes(read[TCP].payload)) == ("PA", 46_720, SEGMENT.payload)
    for layer in IP, TCP:
        del read[layer].chksum
    assert bytes(read) == frame


def test_what_was_built_is_read_whatever_pads_it():
    assert decode_tcp(encode_tcp(SEGMENT)) == SEGMENT
    short = Segment(SEGMENT.source, SEGMENT.destination, 1, 2)
    assert decode_tcp(encode_tcp(short).ljust(60, b"\0")) == short


def test_a_segment_of_scapys_is_read():
    layers = IP(src="10.0.0.3", dst="10.0.0.4") / TCP(sport=1, dport=2, seq=3, ack=4, flags="A") / Raw(b"odd")
    read = decode_tcp(bytes(Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04") / layers))
    assert (read.source.port, read.destination.port, read.sequence, read.payload) == (1, 2, 3, b"odd")


@pytest.mark.parametrize("byte", [12, 14, 22, 30, 34, 38, 46, 50, 54, 120])
def test_a_damaged_segment_is_none(byte):
    frame = bytearray(encode_tcp(SEGMENT))
    frame[byte] ^= 4
    assert decode_tcp(bytes(frame)) is None


def test_other_traffic_is_none():
    assert decode_tcp(b"") is None
    assert decode_tcp(bytes(Ether() / IP(dst="10.0.0.2") / UDP() / Raw(bytes(60)))) is None
    assert (
        decode_tcp(bytes(Ether() / IP(dst="10.0.0.2") / TCP(options=[("MSS", 1460)]) / Raw(bytes(60)))) is None
    )
    assert decode_tcp(encode_tcp(SEGMENT)[:-1]) is None
