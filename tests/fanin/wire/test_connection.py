"""The frames of a connection: what is encoded is decoded, and what scapy reads."""

import random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.wire.connection import (
    CONNECTION_LINK,
    ConnectionFrame,
    decode_connection,
    encode_connection,
)
from fanin.wire.ethernet import Encap, Endpoint
from fanin.wire.link import ETHERTYPE_LINK, LINK_PORT, LinkKind

SOURCE, DESTINATION = Endpoint(0x020000000001, 0x0A000001), Endpoint(0x020000000002, 0x0A000002)
each_encap = pytest.mark.parametrize("encap", list(Encap))


def encoded(frame, encap=Encap.L2, **other):
    ends = {"source": SOURCE, "destination": DESTINATION}
    return encode_connection(frame, **({"beat_bytes": 64} | ends | other), encap=encap)


def a_frame(rng, kind):
    words = tuple(rng.getrandbits(32) for _ in range(rng.randint(1, 352))) if kind == LinkKind.DATA else ()
    numbers = {name: rng.getrandbits(32) for name in ("sequence", "limit", "frame")}
    return ConnectionFrame(kind, rng.getrandbits(16), rng.getrandbits(8), words=words, **numbers)


@each_encap
@pytest.mark.parametrize("beat_bytes", [4, 8, 16, 32, 64])
def test_what_is_encoded_is_decoded(encap, beat_bytes):
    rng = random.Random(beat_bytes)
    for kind in LinkKind:
        frame = a_frame(rng, kind)
        data = encoded(frame, encap, beat_bytes=beat_bytes)
        assert decode_connection(data) == frame
        assert len(data) % beat_bytes == 0
        assert len(data) >= 64
        assert kind == LinkKind.DATA or len(data) == 64


def test_every_header_has_18_bytes_and_its_fields_where_the_page_says():
    frame = ConnectionFrame(LinkKind.DATA, 0x1234, 7, sequence=2, limit=3, frame=4, words=(0x3F800000,))
    data = encoded(frame)
    assert data[12:32].hex() == "88b6" + "60" + "07" + "1234" + "0001" + "00000002" + "00000003" + "00000004"
    assert data[32:36] == bytes.fromhex("0000803f")
    assert CONNECTION_LINK.header_bytes(Encap.UDP) == 64
    assert encoded(frame, Encap.UDP)[42:60] == data[14:32]
    answer = ConnectionFrame(LinkKind.ACK, 0x1234, 7, arrived=0x80000001)
    for encap in Encap:
        data = encoded(answer, encap)
        at = CONNECTION_LINK.header_at(encap) + 18
        assert (len(data), data[at : at + 4].hex()) == (64, "80000001")
        assert decode_connection(data) == answer


@each_encap
def test_scapy_reads_addresses_lengths_and_checksum(encap):
    frame = a_frame(random.Random(1), LinkKind.DATA)
    read = Ether(data := encoded(frame, encap, priority=6))
    assert (read.src, read.dst) == ("02:00:00:00:00:01", "02:00:00:00:00:02")
    if encap is Encap.L2:
        assert read.type == ETHERTYPE_LINK
        return
    ip, udp = read[IP], read[UDP]
    assert (ip.src, ip.dst, ip.tos, ip.len) == ("10.0.0.1", "10.0.0.2", 6 << 5, len(data) - 14)
    assert (udp.sport, udp.dport, udp.len, udp.chksum) == (LINK_PORT, LINK_PORT, len(data) - 34, 0)
    made = ip.copy()
    del made.chksum
    assert IP(bytes(made)).chksum == ip.chksum


@each_encap
def test_what_is_cut_short_or_other_traffic_is_no_frame(encap):
    frame = a_frame(random.Random(2), LinkKind.DATA)
    data = encoded(frame, encap)
    whole = CONNECTION_LINK.header_bytes(encap) + 4 * len(frame.words)
    assert [n for n in range(whole) if decode_connection(data[:n]) is not None] == []
    at = CONNECTION_LINK.header_at(encap)
    spoilt = [12, at]  # EtherType, version
    # IPv4: version, fragment, protocol, checksum; port
    spoilt += [14, 20, 23, 24, 36] if encap is Encap.UDP else []
    for byte in spoilt:
        other = bytearray(data)
        other[byte] ^= 0x20
        assert decode_connection(bytes(other)) is None


def test_an_answer_cut_before_the_end_of_its_bitmap_is_no_frame():
    answer = ConnectionFrame(LinkKind.ACK, 0x1234, 7, sequence=5, limit=9, arrived=0x80000001)
    whole = 14 + 18 + 4  # bytes of Ethernet's header, the connection's header, and the bitmap
    data = encoded(answer)
    assert [n for n in range(whole) if decode_connection(data[:n]) is not None] == []
    assert decode_connection(data[:whole]) == answer
