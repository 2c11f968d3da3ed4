# amaranth: UnusedElaboratable=no
"""BfpCompressor and BfpDecompressor against the golden codec: bytes, errors, latency, throughput."""

import random
from itertools import pairwise

import pytest

from fanin.codec.facts import Bfp
from fanin.codec.golden import bfp
from fanin.hdl.codec.bfp import BfpCompressor, BfpDecompressor
from tests.hdl.codec.block_bench import (
    around_the_length,
    compress,
    decoded,
    decompress,
    encoded,
    errors_of,
    gradients,
    latencies,
    random_frames,
)
from tests.hdl.stream.frames import frames
from tests.support import new_seed, slow

SHAPES = [(256, 4, 3), (256, 8, 8), (256, 16, 7), (256, 32, 15), (256, 64, 3), (256, 4, 8)]
SHAPES += [(512, 4, 15), (512, 8, 3), (512, 16, 7), (512, 32, 8), (512, 64, 7), (512, 4, 8)]
# With exponents of less than 8 bits: grains of 8 bits, 4, 2 and 1, blocks of several words, and an offset.
SHAPES += [(256, 4, 7, 5, 8), (256, 16, 7, 5), (256, 64, 3, 4, 7), (256, 4, 8, 4), (256, 16, 7, 1, 9)]
SHAPES += [(512, 4, 8, 5), (512, 16, 7, 5), (512, 64, 7, 5), (512, 64, 15, 1), (512, 8, 3, 7), (512, 16, 3, 4)]
SHAPES += [(512, 4, 8, 1), (512, 4, 15, 6), (256, 8, 7, 2, 31), (256, 8, 4, 3)]
CASES = [(shape, 0.4) for shape in SHAPES] + [
    ((256, 4, 15), 0.0),
    ((256, 16, 8), 0.0),
    ((512, 16, 7), 0.0),
    ((256, 16, 7, 5), 0.0),
]


def split(shape):
    """The codec and the width of a shape."""
    return Bfp(*shape[1:]), shape[0]


@pytest.mark.parametrize(("shape", "stall"), CASES, ids=str)
def test_compressor_gives_the_golden_bytes(shape, stall):
    seed = new_seed()
    sent = random_frames(random.Random(seed), 5)
    log = compress(*split(shape), sent, stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == [encoded(frame, Bfp(*shape[1:])) for frame in sent]


@pytest.mark.parametrize(("shape", "stall"), CASES, ids=str)
def test_decompressor_gives_the_golden_values(shape, stall):
    """Any bits are a compressed stream, too."""
    seed = new_seed()
    rng, config = random.Random(seed), Bfp(*shape[1:])
    sent = random_frames(rng, 4)
    streams = [encoded(frame, config) for frame in sent]
    expected = [decoded(frame, config) for frame in sent]
    noise = bytes(rng.choices([0, 1, 2, 4, 0x60, 0xC0, 0xFF], k=len(encoded(bytes(4 * 150), config))))
    streams.append(noise)
    expected.append(bfp.decode(noise, 150, config).tobytes())
    log = decompress(*split(shape), streams, [len(frame) for frame in expected], stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == expected
    assert errors_of(log) == [False] * len(expected)


@pytest.mark.parametrize(
    ("shape", "stall"),
    [
        ((256, 4, 4), 0.0),
        ((256, 32, 7), 0.0),
        ((512, 8, 3), 0.4),
        ((256, 4, 7, 5), 0.4),
        ((256, 16, 7, 5), 0.0),
        ((512, 64, 3, 1), 0.4),
        *slow(((256, 8, 15), 0.4), ((512, 64, 7), 0.4), ((512, 16, 7), 0.4), ((512, 4, 8), 0.0)),
    ],
    ids=str,
)
def test_a_stream_that_is_too_short_is_an_error_and_one_too_long_is_cut(shape, stall):
    """Of each length around what the values ask for; the frames behind them are whole."""
    seed = new_seed()
    rng, config = random.Random(seed), Bfp(*shape[1:])
    sent, streams, errors = around_the_length(rng, config, shape[0])
    log = decompress(*split(shape), streams, [len(frame) for frame in sent], stall=stall, seed=seed)
    got = frames(payload for _, payload in log["o"])
    assert errors_of(log) == errors
    assert [len(frame) for frame in got] == [len(frame) for frame in sent]
    whole = [n for n, error in enumerate(errors) if not error]
    assert [got[n] for n in whole] == [decoded(sent[n], config) for n in whole]


@pytest.mark.parametrize(
    ("shape", "cycles"),
    [
        ((256, 8, 7), 10),
        ((256, 16, 7), 13),
        ((256, 8, 7, 5), 11),
        ((256, 16, 7, 5), 14),
        *slow(((512, 16, 7), 10), ((256, 4, 15), 8), ((512, 64, 3), 15)),
    ],
)
def test_compressor_latency_and_rate(shape, cycles):
    """Of a frame of one block, whose last piece ends the only word; behind it a long frame, a word a cycle."""
    block = 4 * shape[1]
    log = compress(*split(shape), [bytes(block), bytes(5 * shape[0])])  # 40 words
    taken = [cycle for cycle, _ in log["i"]]
    first = -(-block * 8 // shape[0])  # words
    assert log["o"][0][0] - taken[first - 1] == cycles == latencies(*split(shape))[0]
    assert taken == list(range(taken[0], taken[0] + first + 40))


@pytest.mark.parametrize(("words", "extra"), [(3, 0), (4, 1)])
def test_a_last_piece_that_fills_a_word_and_leaves_bytes_costs_a_cycle(words, extra):
    """Pieces of 9 bytes: the fourth ends 4 bytes behind the first word of the stream."""
    log = compress(Bfp(8, 7), 256, [bytes(32 * words)] * 10)
    taken = [cycle for cycle, _ in log["i"]]
    assert taken[-1] - taken[0] == 10 * words - 1 + extra * 7  # the last three frames end behind it


def test_words_that_a_block_lacks_take_a_cycle_each():
    log = compress(Bfp(32, 7), 256, [bytes(32), bytes(64), bytes(96), bytes(128), bytes(4)])
    taken = [cycle for cycle, _ in log["i"]]
    assert [b - a for a, b in pairwise(taken)] == [4, 1, 3, 1, 1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "shape",
    [(256, 8, 7), (256, 64, 15), (256, 8, 7, 5), (256, 16, 7, 3), *slow(((512, 16, 7),), ((512, 4, 15),))],
    ids=str,
)
def test_decompressor_latency_and_rate(shape):
    config = Bfp(*shape[1:])
    frame = gradients(random.Random(new_seed()), 8 * 64)
    log = decompress(*split(shape), [encoded(frame, config)] * 3, [len(frame)] * 3)
    given = [cycle for cycle, _ in log["o"]]
    gaps = [b - a for a, b in pairwise(given)]
    each = len(frame) * 8 // shape[0]
    cycles = 6 if len(shape) == 3 else 7
    assert given[0] - log["i"][0][0] == cycles == latencies(*split(shape))[1]
    assert all(gap == 1 for n, gap in enumerate(gaps, 1) if n % each)
    assert all(gap <= 2 for n, gap in enumerate(gaps, 1) if n % each == 0)


@pytest.mark.parametrize("component", [BfpCompressor, BfpDecompressor])
def test_bad_parameters_are_refused(component):
    for bad, message in [
        ({"width": 128}, "width must be 256 or 512 bits, not 128"),
        ({"block": 12}, "block must be one of 4, 8, 16, 32, 64, not 12"),
        ({"mantissa": 2}, "mantissa must be 3 to 15 bits, not 2"),
        ({"exponent": 0}, "exponent must be 1 to 8 bits, not 0"),
        ({"exponent": 9}, "exponent must be 1 to 8 bits, not 9"),
        ({"exponent": 5, "offset": 32}, "offset must be 0 to 31, not 32"),
        ({"offset": 1}, "offset must be 0 with an exponent of 8 bits, not 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            component(**bad)
