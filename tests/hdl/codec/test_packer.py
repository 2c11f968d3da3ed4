# amaranth: UnusedElaboratable=no
"""BytePacker: the bytes of the pieces and no others, in the fewest words, a piece a cycle."""

import random
from itertools import pairwise

import pytest

from fanin.hdl.codec.packer import BytePacker
from tests.hdl.stream.frames import frames
from tests.support import new_seed, simulate

SIZES = [
    (32, 1),
    (32, 4),
    (32, 8),
    (64, 3),
    (64, 8),
    (64, 11),
    (64, 16),
    (256, 34),
    (512, 8),
    (512, 64),
    (512, 68),
]
STALLS = {"full rate": 0.0, "idle": {"i": 0.7}, "backpressure": {"o": 0.7}, "both": 0.4}


def pieces(sent, max_bytes, rng):
    """The pieces of frames, each a list of runs of bytes; what lies above ``count`` is noise."""
    for frame in sent:
        for index, part in enumerate(frame):
            noise = part + rng.randbytes(max_bytes - len(part))
            yield {
                "data": int.from_bytes(noise, "little"),
                "count": len(part),
                "last": index == len(frame) - 1,
            }


def cycles_of(frame, size):
    """Cycles that the pieces of a frame take, by the docstring."""
    held, cycles = 0, []
    for index, part in enumerate(frame):
        held += len(part)
        words, held = divmod(held, size)
        cycles.append(max(1, words + (held > 0 and index == len(frame) - 1)))
    return cycles


def pack(dut, sent, *, stall, seed):
    total = sum(-(-sum(map(len, frame)) // (dut.width // 8)) for frame in sent)
    drive = {"i": list(pieces(sent, dut.max_bytes, random.Random(seed)))}
    return simulate(dut, drive=drive, collect={"o": total}, stall=stall, seed=seed)


def random_frames(rng, max_bytes, count):
    """Frames of pieces that are often empty or as long as can be; the last one has a byte."""

    def size(least):
        return rng.choice([least, 1, max_bytes - 1, max_bytes, max_bytes, rng.randint(least, max_bytes)])

    return [
        [rng.randbytes(size(0)) for _ in range(rng.randrange(12))] + [rng.randbytes(max(1, size(1)))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_frames_are_their_pieces_joined(shape, stall):
    seed = new_seed()
    dut = BytePacker(width=shape[0], max_bytes=shape[1])
    sent = random_frames(random.Random(seed), shape[1], 25)
    log = pack(dut, sent, stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == [b"".join(frame) for frame in sent]


@pytest.mark.parametrize("shape", [(32, 3), (32, 4), (32, 7)], ids=str)
def test_every_count_at_every_place_in_a_word(shape):
    """All pairs of pieces behind any number of bytes, as inner and as last ones."""
    width, most = shape
    dut = BytePacker(width=width, max_bytes=most)
    runs = range(most + 1)
    shapes = [[a, b, c] for a in runs for b in runs for c in runs if c] + [[c] for c in runs if c]
    sent = [[bytes(range(16 * n, 16 * n + count)) for n, count in enumerate(shape)] for shape in shapes]
    log = pack(dut, sent, stall=0, seed=new_seed())
    assert frames(payload for _, payload in log["o"]) == [b"".join(frame) for frame in sent]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_a_piece_takes_a_cycle_for_every_word_and_at_least_one(shape):
    seed = new_seed()
    dut = BytePacker(width=shape[0], max_bytes=shape[1])
    sent = random_frames(random.Random(seed), shape[1], 15)
    taken = [cycle for cycle, _ in pack(dut, sent, stall=0, seed=seed)["i"]]
    cycles = [count for frame in sent for count in cycles_of(frame, shape[0] // 8)]
    assert [b - a for a, b in pairwise(taken)] == cycles[:-1]


def test_latency_is_two_cycles():
    dut = BytePacker(width=64, max_bytes=8)
    log = pack(dut, [[bytes(5), bytes(5), bytes(6)]], stall=0, seed=new_seed())
    assert [cycle for cycle, _ in log["o"]] == [log["i"][1][0] + 2, log["i"][2][0] + 2]


@pytest.mark.parametrize("width", [16, 48, 0, -32])
def test_a_width_that_is_no_power_of_two_of_bytes_is_refused(width):
    with pytest.raises(ValueError, match=f"width must be a power of two, at least 32, not {width}"):
        BytePacker(width=width, max_bytes=1)


@pytest.mark.parametrize("max_bytes", [0, 17])
def test_pieces_of_no_byte_or_of_more_than_two_words_are_refused(max_bytes):
    with pytest.raises(ValueError, match=f"max_bytes must be 1 to 16 at width 64, not {max_bytes}"):
        BytePacker(width=64, max_bytes=max_bytes)
