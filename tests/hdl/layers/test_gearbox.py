# amaranth: UnusedElaboratable=no
"""Gearbox: the same words in other transfers, frame by frame."""

import random

import pytest

from fanin.hdl.layers.gearbox import Gearbox
from tests.support import new_seed, simulate

SHAPES = [(1, 16, 40), (16, 1, 40), (3, 16, 27), (16, 3, 27), (24, 16, 48), (16, 24, 48), (16, 16, 16)]
SHAPES += [
    (5, 16, 100),
    (16, 5, 100),
    (5, 1, 5),
    (4, 2, 12),
    (32, 16, 64),
    (16, 10, 10),
    (10, 16, 10),
    (7, 7, 21),
    (2, 16, 5),
    (16, 2, 5),
    (3, 4, 10),
]


def transfers(words, width, pad):
    return [
        words[at : at + width] + [pad] * (width - len(words[at : at + width]))
        for at in range(0, len(words), width)
    ]


def shifted(source, target, frame, *, stall, frames=5):
    seed = new_seed()
    rng = random.Random(seed)
    maps = [[rng.getrandbits(32) for _ in range(frame)] for _ in range(frames)]
    unused = rng.getrandbits(32) if frame % target == 0 or frame % source == 0 else 0
    given = [t for words in maps for t in transfers(words, source, unused)]
    expected = [t for words in maps for t in transfers(words, target, 0)]
    log = simulate(
        Gearbox(source=source, target=target, frame=frame),
        drive={"i": given},
        collect={"o": len(expected)},
        stall=stall,
        seed=seed,
    )
    return log, expected


@pytest.mark.parametrize("stall", [0.0, 0.5], ids=["full rate", "stalls"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_words_come_in_order_and_each_frame_begins_anew(shape, stall):
    log, expected = shifted(*shape, stall=stall)
    assert [list(payload) for _, payload in log["o"]] == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_narrower_side_has_a_transfer_a_cycle(shape):
    source, target, _ = shape
    log, _ = shifted(*shape, stall=0.0)
    cycles = [cycle for cycle, _ in log["i" if source <= target else "o"]]
    # A frame's last payload may wait for the payload before it.
    assert cycles[-1] - cycles[0] <= len(cycles) - 1 + 5 * (shape[2] % max(source, target) > 0)


def test_latency_is_as_documented():
    log, _ = shifted(4, 16, 16, stall=0.0, frames=1)
    assert log["o"][0][0] - log["i"][-1][0] == 1


def test_words_may_be_bits():
    frames = [[random.Random(n).getrandbits(1) for _ in range(35)] for n in range(2)]
    given, expected = ([t for bits in frames for t in transfers(bits, width, 0)] for width in (5, 32))
    log = simulate(
        Gearbox(source=5, target=32, frame=35, word_bits=1),
        drive={"i": given},
        collect={"o": len(expected)},
        stall=0.3,
        seed=new_seed(),
    )
    assert [list(payload) for _, payload in log["o"]] == expected
