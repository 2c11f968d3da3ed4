"""What INCEPTIONN's NIC stages do to frames, with scapy as the second opinion on every length and checksum."""

import random
import struct

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW, Inceptionn, Mode
from fanin.codec.golden import inceptionn
from fanin.codec.golden.packet import MAX_FRAME, compress_payload, receive, transmit
from tests.fanin.codec.golden.packets import OTHER_TRAFFIC, TRANSPORTS, frame_of, gradients, payload_of, rebuilt

CONFIG = Inceptionn()
every_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def decoded(payload, config=CONFIG):
    """What the payload's values become, its tail as it is."""
    whole = len(payload) // 4 * 4
    return inceptionn.roundtrip(np.frombuffer(payload[:whole], "<f4"), config).tobytes() + payload[whole:]


@every_transport
@pytest.mark.parametrize("length", [3, 4, 5, 18, 31, 32, 33, 100, 101, 102, 103, 1472 - 40, 8000])
def test_scapy_agrees_with_the_wire_and_with_what_the_receiver_gets(transport, length):
    payload = gradients(length, length)
    sent = frame_of(payload, transport)
    wire = transmit(sent, CONFIG)
    assert wire == rebuilt(wire)
    assert len(wire) <= len(sent)
    assert Ether(wire)[IP].tos in (TOS_COMPRESSIBLE, TOS_RAW)
    received = receive(wire)
    arrives = payload if Ether(wire)[IP].tos == TOS_RAW else decoded(payload)
    assert received == rebuilt(received) == frame_of(arrives, transport)


@every_transport
def test_a_packet_that_shrinks_carries_length_and_groups(transport):
    payload = gradients(1000)
    wire = Ether(transmit(frame_of(payload, transport), CONFIG))
    expected = struct.pack(">H", 1000) + inceptionn.encode(np.frombuffer(payload, "<f4"), CONFIG)
    assert wire[IP].tos == TOS_COMPRESSIBLE
    assert wire[Raw].load == expected


@every_transport
@pytest.mark.parametrize("length", [0, 1, 2, 3, 400])
def test_a_payload_that_does_not_shrink_goes_as_it_is_and_comes_back_whole(transport, length):
    sent = frame_of(bytes(range(0x3F, 0x43)) * 100 if length == 400 else b"\xff" * length, transport)
    wire = transmit(sent, CONFIG)
    assert Ether(wire)[IP].tos == TOS_RAW
    assert wire == rebuilt(wire)
    assert [k for k, (a, b) in enumerate(zip(sent, wire, strict=True)) if a != b and k not in (24, 25)] == [15]
    assert receive(wire) == sent


def test_only_lengths_and_checksums_of_the_headers_change():
    sent = frame_of(gradients(1000), "tcp_options")
    wire = transmit(sent, CONFIG)
    changed = {k for k in range(14 + 20 + 32) if sent[k] != wire[k]}
    assert changed <= {16, 17, 24, 25, 50, 51}


@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != "udp_no_checksum"])
@pytest.mark.parametrize("length", [2, 60, 61, 400])
def test_a_checksum_that_is_wrong_at_the_sender_is_as_wrong_at_the_receiver(transport, length):
    sent = bytearray(frame_of(gradients(length), transport))
    at = 40 if transport.startswith("udp") else 50
    right = int.from_bytes(rebuilt(receive(transmit(bytes(sent), CONFIG)))[at : at + 2], "big")
    wrong_by = 0x1234
    old = int.from_bytes(sent[at : at + 2], "big")
    sent[at : at + 2] = ((old + wrong_by) % 0xFFFF).to_bytes(2, "big")
    sent[24] ^= 0x40
    received = receive(transmit(bytes(sent), CONFIG))
    assert int.from_bytes(received[at : at + 2], "big") % 0xFFFF == (right + wrong_by) % 0xFFFF
    assert received[24:26] != rebuilt(received)[24:26]


def test_an_error_on_the_way_is_found_by_the_receiving_host():
    wire = bytearray(transmit(frame_of(gradients(400)), CONFIG))
    wire[60] ^= 0x10
    received = receive(bytes(wire))
    assert received is not None
    assert received[40:42] != rebuilt(received)[40:42]


def test_a_udp_checksum_that_becomes_zero_is_sent_as_all_ones():
    """The last two bytes are a raw tail, so they can be chosen for the wire's checksum to become 0."""
    payload = gradients(400) + b"\0\0"
    wire = transmit(frame_of(payload), CONFIG)
    tail = Ether(wire)[UDP].chksum.to_bytes(2, "big")
    wire = transmit(frame_of(payload[:-2] + tail), CONFIG)
    assert Ether(wire)[UDP].chksum == 0xFFFF
    assert receive(wire) == rebuilt(receive(wire))


@pytest.mark.parametrize("kind", OTHER_TRAFFIC)
def test_other_traffic_passes_untouched(kind):
    frame = OTHER_TRAFFIC[kind]
    assert transmit(frame, CONFIG) == frame
    if kind != "other_tos" and len(frame) > 15:
        raw = frame[:15] + bytes([TOS_RAW]) + frame[16:]
        assert receive(raw) == raw
    assert receive(frame) == frame


def test_padding_behind_a_compressed_packet_is_replaced():
    sent = frame_of(gradients(100)) + b"trailer"
    assert receive(transmit(sent, CONFIG)) == frame_of(decoded(gradients(100)))
    wire = transmit(frame_of(bytes(40)) + b"\xff" * 9, CONFIG)
    assert len(wire) == 60
    assert wire[42 + 2 + 4 :] == bytes(60 - 48)


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 4, 20, 60])
def test_a_compressed_payload_that_ends_early_is_dropped(keep):
    data = compress_payload(gradients(400), CONFIG)
    assert receive(frame_of(data)) is not None
    assert receive(frame_of(data[:keep])) is None


def test_a_stated_length_that_cannot_be_right_is_dropped():
    data = compress_payload(bytes(400), CONFIG)
    assert receive(frame_of(data)) is not None
    for length in 0, len(data), MAX_FRAME - 41, 0xFFFF:
        assert receive(frame_of(struct.pack(">H", length) + data[2:])) is None
    assert receive(frame_of(struct.pack(">H", MAX_FRAME - 42) + bytes(2 * 300))) is not None


def test_bytes_behind_the_groups_are_ignored():
    data = compress_payload(gradients(400), CONFIG)
    assert receive(frame_of(data + b"xyz")) == frame_of(decoded(gradients(400)))


def test_a_frame_too_long_is_dropped():
    assert transmit(bytes(MAX_FRAME + 1), CONFIG) is None
    assert receive(bytes(MAX_FRAME + 1)) is None
    assert transmit(bytes(MAX_FRAME), CONFIG) == bytes(MAX_FRAME)


def test_any_bytes_are_received_without_a_failure():
    rng = random.Random(1)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(200))
        length = struct.pack(">H", rng.choice([rng.randrange(1 << 16), rng.randrange(400)]))
        received = receive(frame_of(length + data))
        assert received is None or len(received) <= MAX_FRAME


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("bound", [1, 8, 15])
def test_bound_and_mode_are_those_of_the_configuration(mode, bound):
    config = Inceptionn(bound, mode)
    payload = gradients(999)
    assert payload_of(receive(transmit(frame_of(payload), config))) == decoded(payload, config)
