"""What the kernel leaves to a card, done in software: scapy's checksums beside ours, segments put together."""

import contextlib
import random
import struct

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from fanin.host.offload import MAX_SEGMENTS, OFFLOAD, wire_frames
from tests.support import new_seed

NEEDS_CHECKSUM, TCP4, TCP6, UDP_L4 = 1, 1, 4, 5


def _partial(frame, start, offset, protocol):
    """As the kernel hands it over: the pseudo header's sum, not its complement, in the checksum's field."""
    v4 = frame[14] >> 4 == 4
    addresses = frame[26:34] if v4 else frame[22:54]
    pseudo = addresses + struct.pack(">IBBH", len(frame) - start, 0, 0, protocol)
    total = sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    at = start + offset
    return frame[:at] + struct.pack(">H", total) + frame[at + 2 :]


def _sent(rng, network, transport, length):
    payload = rng.randbytes(length)
    frame = bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / network / transport / payload)
    start = 14 + (20 if isinstance(network, IP) else 40)
    udp = isinstance(transport, UDP)
    return _partial(frame, start, 6 if udp else 16, 17 if udp else 6), start, 6 if udp else 16, payload


def _right(frame):
    """Whether scapy computes the same checksums and lengths."""
    again = Ether(frame)
    for layer, names in (
        (IP, ("chksum", "len")),
        (IPv6, ("plen",)),
        (TCP, ("chksum",)),
        (UDP, ("chksum", "len")),
    ):
        if layer in again:
            for name in names:
                delattr(again[layer], name)
    return bytes(again) == frame


@pytest.mark.parametrize(
    "network", [IP(src="10.0.0.1", dst="10.0.0.2", id=65534), IPv6(src="fc::1", dst="fc::2")]
)
@pytest.mark.parametrize("transport", [TCP(seq=2**32 - 3000, flags="FPAC", options=[("MSS", 1460)]), UDP()])
@pytest.mark.parametrize("length", [1, 2, 1447, 1448, 5001])
def test_segments_carry_the_payload_with_right_checksums(network, transport, length):
    frame, start, offset, payload = _sent(random.Random(new_seed()), network, transport, length)
    kind = UDP_L4 if offset == 6 else TCP4 if start == 34 else TCP6
    size = 1448
    segments = wire_frames(OFFLOAD.pack(NEEDS_CHECKSUM, kind, 0, size, start, offset), frame)
    assert len(segments) == -(-length // size)
    found = b""
    for number, segment in enumerate(segments):
        assert _right(segment)
        layers = Ether(segment)
        if IP in layers:
            assert layers[IP].id == (65534 + number) % 65536
        if TCP in layers:
            last = number == len(segments) - 1
            assert layers[TCP].seq == (2**32 - 3000 + len(found)) % 2**32
            assert ("F" in layers[TCP].flags, "P" in layers[TCP].flags) == (last, last)
            assert ("C" in layers[TCP].flags) == (number == 0)
        found += bytes((layers[TCP] if TCP in layers else layers[UDP]).payload)
    assert found == payload


def test_a_checksum_alone_is_completed_and_zero_is_sent_as_all_ones():
    rng = random.Random(new_seed())
    frame, start, offset, _ = _sent(rng, IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2), 333)
    (whole,) = wire_frames(OFFLOAD.pack(NEEDS_CHECKSUM, 0, 0, 0, start, offset), frame)
    assert _right(whole)
    zero = bytes(14) + b"\x45" + bytes(19) + bytes(4) + b"\x00\x08" + b"\xff\xff"  # sums up to all ones
    (whole,) = wire_frames(OFFLOAD.pack(NEEDS_CHECKSUM, 0, 0, 0, 34, 6), zero[:38] + b"\x00\x00\xff\xff")
    assert whole[40:42] == b"\xff\xff"


def test_a_frame_without_requests_is_as_it_is():
    assert wire_frames(bytes(10), b"frame") == [b"frame"]


@pytest.mark.parametrize(
    ("offload", "message"),
    [
        (OFFLOAD.pack(0, TCP4, 0, 1000, 34, 16), "segments without a checksum"),
        (OFFLOAD.pack(NEEDS_CHECKSUM, 3, 0, 1000, 34, 16), "segments of kind 3"),  # UDP fragments
        (OFFLOAD.pack(NEEDS_CHECKSUM, TCP4, 0, 0, 34, 16), "segments of kind 1"),
        (OFFLOAD.pack(NEEDS_CHECKSUM, 0, 0, 0, 60, 16), "after the end"),
        (OFFLOAD.pack(NEEDS_CHECKSUM, TCP4, 0, 1000, 34, 16), "after other headers"),
    ],
)
def test_what_else_the_kernel_may_ask_is_refused(offload, message):
    with pytest.raises(ValueError, match=message):
        wire_frames(offload, bytes(64))


def test_a_large_send_of_very_many_segments_is_refused():
    frame, start, offset, _ = _sent(random.Random(0), IP(), TCP(), 10 * MAX_SEGMENTS)
    assert len(wire_frames(OFFLOAD.pack(NEEDS_CHECKSUM, TCP4, 0, 10, start, offset), frame)) == MAX_SEGMENTS
    with pytest.raises(ValueError, match="2560 bytes in segments of 9"):
        wire_frames(OFFLOAD.pack(NEEDS_CHECKSUM, TCP4, 0, 9, start, offset), frame)


def _large_send(length):
    """An IPv4 TCP send of ``length`` bytes in all, as one frame."""
    ip = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    return (bytes(12) + b"\x08\x00" + ip + bytes(12) + b"\x50\x10" + bytes(6)).ljust(length, b"x")


def test_a_segment_that_ips_length_cannot_describe_is_refused():
    whole = OFFLOAD.pack(NEEDS_CHECKSUM, TCP4, 0, 65535, 34, 16)
    assert len(wire_frames(whole, _large_send(14 + 65535))) == 1
    with pytest.raises(ValueError, match="a segment of 65536 bytes"):
        wire_frames(whole, _large_send(14 + 65536))


def test_any_request_gives_frames_or_a_value_error():
    rng = random.Random(new_seed())
    for _ in range(3000):
        length = rng.choice([14, 15, 20, 34, 54, 60, 100, 1500, 65549, 65554])
        frame = bytearray(rng.randbytes(length) if length < 2000 else bytes(length))
        if length > 24:
            frame[14], frame[20], frame[23] = (
                rng.choice([0x45, 0x46, 0x4F, 0x60]), rng.choice([6, 17]), rng.choice([6, 17]),
            )  # fmt: skip
        start, offset = rng.choice([0, 34, 38, 54, length - 2]), rng.choice([0, 6, 16])
        kind = rng.choice([0, TCP4, TCP6, UDP_L4, 0x80 | TCP4])
        size = rng.choice([0, 1, 255, 1448, 65500, 65535])
        offload = OFFLOAD.pack(rng.choice([0, 1]), kind, 0, size, min(start, 65535), offset)
        with contextlib.suppress(ValueError):
            assert wire_frames(offload, bytes(frame))
