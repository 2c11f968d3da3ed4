"""Segments that begin inside a value are kept from the codec, whatever TCP's numbers and the streams' cuts."""

import random

import numpy as np
import pytest

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW, Inceptionn
from fanin.codec.golden.packet import receive, transmit
from fanin.host.alignment import MAX_CONNECTIONS, Alignment
from fanin.wire.ethernet import Endpoint, encode_udp
from fanin.wire.tcp import ACK, SYN, Segment, decode_tcp, encode_tcp
from tests.fanin.codec.golden.packets import gradients
from tests.support import new_seed

HOST, PEER = Endpoint(1, 0x0A000001, 5000), Endpoint(2, 0x0A000002, 6000)


def _segment(sequence, payload=b"", *, flags=ACK, tos=TOS_COMPRESSIBLE, source=HOST):
    return encode_tcp(
        Segment(source, PEER, sequence % 2**32, 1, flags=flags, tos=tos, payload=payload, window=1000)
    )


@pytest.mark.parametrize("start", [0, 1, 2, 3, 2**32 - 2])
@pytest.mark.parametrize("tos_of_syn", [0, TOS_COMPRESSIBLE])
def test_a_stream_cut_anywhere_stays_within_the_bound(start, tos_of_syn):
    rng, codec = random.Random(new_seed()), Inceptionn()
    stream, alignment, got = gradients(8000), Alignment(), b""
    alignment.prepare(_segment(start, flags=SYN, tos=tos_of_syn))
    inside = 0
    while len(got) < len(stream):
        at = len(got)
        payload = stream[at : at + rng.choice([1, 2, 3, 4, 100, 101, 1446, 1447, 1448])]
        inside += at % 4 != 0
        left = decode_tcp(receive(transmit(alignment.prepare(_segment(start + 1 + at, payload)), codec)))
        assert (left.tos, left.sequence) == (TOS_COMPRESSIBLE, (start + 1 + at) % 2**32)
        got += left.payload
    error = np.abs(np.frombuffer(got, "<f4") - np.frombuffer(stream, "<f4"))
    assert error.max() <= 2**-codec.bound
    assert alignment.unaligned == inside


def test_a_connection_whose_beginning_was_not_seen_is_not_compressed():
    alignment, frame = Alignment(), _segment(100, gradients(400))
    assert alignment.prepare(frame)[15] == TOS_RAW
    assert alignment.unaligned == 1
    other = _segment(99, flags=SYN, source=Endpoint(1, HOST.ip, HOST.port + 1))
    alignment.prepare(other)
    assert alignment.prepare(frame)[15] == TOS_RAW
    alignment.prepare(_segment(99, flags=SYN))
    assert alignment.prepare(frame) is frame


def test_what_is_no_payload_of_tcp_with_this_tos_is_left_alone():
    alignment = Alignment()
    datagram = encode_udp(gradients(400), source=HOST, destination=PEER, tos=TOS_COMPRESSIBLE)
    for frame in (
        _segment(1),
        _segment(1, gradients(400), tos=0),
        datagram,
        bytes(60),
        b"",
        _segment(1, gradients(400))[:50],
    ):
        assert alignment.prepare(frame) is frame
    assert alignment.unaligned == 0


def test_the_connection_that_was_silent_for_longest_is_forgotten_first():
    alignment, old = Alignment(), _segment(1, gradients(40))
    alignment.prepare(_segment(0, flags=SYN))
    for number in range(MAX_CONNECTIONS):
        if number == MAX_CONNECTIONS // 2:
            assert alignment.prepare(old) is old  # it speaks
        alignment.prepare(_segment(0, flags=SYN, source=Endpoint(1, number, 1)))
    assert alignment.prepare(old) is old
    for number in range(MAX_CONNECTIONS):
        alignment.prepare(_segment(0, flags=SYN, source=Endpoint(1, number, 2)))
    assert alignment.prepare(old)[15] == TOS_RAW
