"""The ring's time model: terms by hand, and what binds; tests/sim/ring/test_cosim.py has it beside the RTL."""

import pytest

from fanin.codec.facts import Bf16, Bfp, Inceptionn, Mx
from fanin.codec.formats import Element
from fanin.link import LinkConfig
from fanin.ring.facts import PRESETS, RingConfig
from fanin.sim.ring.time import RingTime

MIB = 262_144  # values


def time(nodes=4, count=MIB, gbps=100.0, codec=None, **changes):
    return RingTime(
        config=RingConfig(codec=codec), nodes=nodes, count=count, link=LinkConfig(gbps=gbps), **changes
    )


def test_the_link_carries_headers_gaps_and_acknowledgements():
    # 4 segments of 4 slices of 16 frames of 64 words: 65 beats and 24 bytes each, an ACK for four frames
    frames = 4 * 6 * 16
    assert time().on_link == pytest.approx((frames * (65 * 64 + 24) + frames / 4 * (64 + 24)) / 50)


def test_at_the_speed_of_the_bus_a_frame_takes_its_beats():
    frames = 4 * 6 * 16
    assert time(gbps=float("inf")).on_link == frames * 65 + frames / 4


def test_lanes_and_memory():
    assert (time().in_lanes, time().in_memory) == (6 * 4 * 1024, 16_384)


def test_a_slow_memory_binds():
    # a word of 512 bits in 128 cycles of 4 ns is 1 Gb/s
    slow = time(memory_gbps=1.0)
    assert (slow.in_memory, slow.binds) == (128 * 16_384, "memory")
    assert slow.total == 130 + 128 * 16_384 + 80  # its way to memory, and the last word's
    assert time(memory_gbps=1e6).total == time().total


@pytest.mark.parametrize(
    ("codec", "gbps", "binds"),
    [(None, 100, "link"), (Bfp(), 100, "lanes"), (Bfp(), 25, "link"), (None, 1e9, "link")],
)
def test_what_binds(codec, gbps, binds):
    assert time(codec=codec, gbps=gbps).binds == binds


def test_block_floating_point_takes_18_beats_and_a_header_for_64_words():
    # 64 words are 64 blocks of 17 bytes: 17 beats, and the header's
    data = time(codec=Bfp(), gbps=float("inf")).on_link
    assert data == 4 * 6 * 16 * (18 + 0.25)


def test_a_narrow_exponent_saves_its_bits():
    # 64 words are 256 blocks of 5 + 4 * 4 bits, 672 bytes: 11 beats, and the header's
    data = time(codec=Bfp(4, 3, 5), gbps=float("inf")).on_link
    assert data == 4 * 6 * 16 * (12 + 0.25)


@pytest.mark.parametrize(
    ("codec", "beats"),
    [(Mx(), 17), (Mx(Element.E2M1), 9), (Mx(Element.E3M2), 13), (Bf16(), 32)],
    ids=str,
)
def test_narrow_formats_take_the_beats_of_their_streams_and_a_header(codec, beats):
    # 64 words are 1024 values, for example 32 blocks of 33 bytes: 16.5 beats, and the header's
    assert time(codec=codec, gbps=float("inf")).on_link == 4 * 6 * 16 * (beats + 1 + 0.25)


def test_what_a_word_takes_may_be_given():
    codec = Inceptionn(group=16)
    assert time(codec=codec, word_bytes=16.0, gbps=1e9).on_link == 4 * 6 * 16 * (17 + 0.25)


def test_a_slice_shorter_than_a_hop_waits_for_it():
    short = time(nodes=4, count=16 * 4 * 8)  # slices of 8 words
    assert short.total > short.steps * short.hop
    assert time(nodes=4, count=16 * 4 * 8, switch_ns=4000).total - short.total == pytest.approx(
        short.steps * 900
    )


def test_short_windows_bind():
    """Frames of 4 words, of which 4 may be unacknowledged: a round trip for 4 of 8,192."""
    tiny = RingTime(config=PRESETS["tiny"], nodes=2, count=MIB)
    assert tiny.total == 130 + tiny.in_window + 80
    assert tiny.in_window == pytest.approx(2048 * (tiny.hop + 153), rel=0.01)


def test_slow_frames_are_acknowledged_each():
    """A frame of 4,184 bytes at 5 a cycle takes longer than the acknowledgement's delay of 500 cycles."""
    frames = 4 * 6 * 16
    assert time(gbps=10).on_link == pytest.approx(frames * (65 * 64 + 24 + 64 + 24) / 5)


def test_engines_take_as_long_as_the_longest_stripe_alone():
    odd = 4 * MIB - 60  # its last word is missing: one stripe is shorter
    assert time(count=odd, engines=4).total == time(count=MIB).total
    assert time(count=odd, engines=4).in_memory == time(count=MIB).in_memory
    assert time(count=odd, engines=4).total < time(count=odd).total / 3


def test_alpha_and_beta_follow_from_the_frames():
    # a header of a beat and 24 bytes around each frame; an ACK of 64 bytes and 24 for four
    assert time().utilisation == pytest.approx(64 * 64 / (65 * 64 + 24 + 88 / 4))
    assert time().ratio == 1
    assert time(codec=Bfp(), gbps=40).ratio == pytest.approx(512 / 136)
    assert time(codec=Bfp(), gbps=40).utilisation == pytest.approx(17 * 64 / (18 * 64 + 24 + 88 / 4))
