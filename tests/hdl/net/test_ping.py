# amaranth: UnusedElaboratable=no
"""The responder for ARP and ping: frames of all kinds against the model, at every width, with stalls."""

import random

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from fanin.golden.ping import MAX_PING, reply
from fanin.hdl.net.ping import PingResponder
from fanin.wire.ethernet import Endpoint
from tests.support import new_seed, simulate, slow

OWN = Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01)
MAC, ADDRESS = "02:00:00:00:00:01", "10.0.0.1"


def _arp():
    return bytes(Ether(src="02:11:11:11:11:11", dst="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc="02:11:11:11:11:11", psrc="10.0.0.77", pdst=ADDRESS))  # fmt: skip


def _echo(payload, sequence=9):
    return bytes(Ether(src="02:11:11:11:11:11", dst=MAC) / IP(src="10.0.0.77", dst=ADDRESS)
                 / ICMP(id=7, seq=sequence) / Raw(payload))  # fmt: skip


CARRIES = _echo(b"", 0xF800)  # its checksum is so high that the reply's, 0x0800 more, goes round


def test_the_model_answers_as_scapy_would():
    assert CARRIES[36] >= 0xF8
    asked, answered = Ether(_arp()), Ether(reply(_arp(), OWN))
    assert (answered.dst, answered.src) == (asked.src, MAC)
    assert (answered[ARP].op, answered[ARP].hwsrc, answered[ARP].psrc) == (2, MAC, ADDRESS)
    assert (answered[ARP].hwdst, answered[ARP].pdst) == (asked.src, "10.0.0.77")
    for asked in (CARRIES, *(_echo((bytes(range(256)) * 6)[:size]) for size in (0, 1, 56, 1472))):
        answered = Ether(reply(asked, OWN))
        assert (answered.src, answered.dst, answered[IP].src, answered[IP].dst) == (
            MAC, "02:11:11:11:11:11", ADDRESS, "10.0.0.77",
        )  # fmt: skip
        assert (answered[ICMP].type, answered[ICMP].id, answered[ICMP].seq) == (0, 7, Ether(asked)[ICMP].seq)
        right = answered.copy()
        del right[IP].chksum, right[ICMP].chksum
        assert bytes(right) == bytes(answered)


def _frames(rng, count):
    """Requests, and frames of which one bit that decides is another."""
    for _ in range(count):
        frame = rng.choice((_arp(), _arp().ljust(60, b"\0"), _echo(rng.randbytes(rng.choice((0, 1, 56, 90))))))
        if rng.random() < 0.5:
            at = rng.randrange(min(42, len(frame)))
            frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
        if rng.random() < 0.1:
            frame = frame[: rng.randrange(1, 43)]
        yield frame


def _beats(frame, width, *, error=False):
    size = width // 8
    for at in range(0, len(frame), size):
        part = frame[at : at + size]
        last = at + size >= len(frame)
        yield {
            "data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1, "last": last,
            "error": int(error and last),
        }  # fmt: skip


def _answers(log):
    frames, frame = [], b""
    for _, beat in log["o"]:
        size = beat.keep.bit_count()
        frame += (beat.data & (1 << 8 * size) - 1).to_bytes(size, "little")
        if beat.last:
            frames.append(frame)
            frame = b""
    return frames


@pytest.mark.parametrize("width", [16, 64, 512, *slow(32, 128, 256)])
def test_requests_are_answered_and_nothing_else(width):
    seed = new_seed()
    rng = random.Random(seed)
    frames = [_arp(), CARRIES, *_frames(rng, 6), _echo(b"")]  # as many as find room at any width
    errors = [rng.random() < 0.1 for _ in frames]
    errors[0] = errors[-1] = False
    answers = [None if error else reply(frame, OWN) for frame, error in zip(frames, errors, strict=True)]
    expected = [answer for answer in answers if answer is not None]
    found = simulate(
        PingResponder(width=width),
        drive={
            "i": [beat for of in zip(frames, errors, strict=True) for beat in _beats(of[0], width, error=of[1])]
        },
        collect={"o": sum(-(-len(one) * 8 // width) for one in expected)},
        settings={"own_mac": OWN.mac, "own_ip": OWN.ip},
        seed=seed,
    )
    assert _answers(found) == expected


@pytest.mark.parametrize("width", [64, *slow(16, 512)])
def test_every_bit_that_decides_does(width):
    """Frames of which one bit is wrong, all that the model does not answer: none is answered."""
    wrong = []
    for frame in (_arp(), _echo(b"")):
        for bit in range(8 * len(frame)):
            other = bytearray(frame)
            other[bit // 8] ^= 1 << bit % 8
            wrong.append(bytes(other))
        wrong += [frame[:-1], frame[:20], frame[:1]]
    wrong = [frame for frame in wrong if reply(frame, OWN) is None]
    assert len(wrong) > 250
    expected = reply(_arp(), OWN)
    found = simulate(
        PingResponder(width=width),
        drive={"i": [beat for frame in (*wrong, _arp()) for beat in _beats(frame, width)]},
        collect={"o": -(-len(expected) * 8 // width)},
        settings={"own_mac": OWN.mac, "own_ip": OWN.ip},
        stall=0,
    )
    assert _answers(found) == [expected]


def test_the_longest_ping_is_answered_and_a_longer_one_is_not():
    width = 512
    longest, longer = _echo(bytes(MAX_PING - 42)), _echo(bytes(MAX_PING - 41))
    assert reply(longer, OWN) is None
    expected = [reply(longest, OWN)]
    found = simulate(
        PingResponder(width=width),
        drive={"i": [*_beats(longer, width), *_beats(longest, width)]},
        collect={"o": -(-len(longest) * 8 // width)},
        settings={"own_mac": OWN.mac, "own_ip": OWN.ip},
        stall=0,
    )
    assert _answers(found) == expected
