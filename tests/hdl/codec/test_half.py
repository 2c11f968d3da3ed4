# amaranth: UnusedElaboratable=no
"""HalfCompressor and HalfDecompressor against the golden codec: bytes, errors, random bits, latency, rate."""

import random
from itertools import pairwise

import numpy as np
import pytest

from fanin.codec.facts import Bf16, Codec, Fp16
from fanin.codec.formats import Rounding
from fanin.codec.golden import half
from fanin.hdl.codec.half import HalfCompressor, HalfDecompressor
from fanin.hdl.codec.make import make_compressor
from tests.hdl.codec.block_bench import (
    around_the_length,
    compress,
    decoded,
    decompress,
    encoded,
    encoded_in_sequence,
    errors_of,
    gradients,
    latencies,
    random_frames,
    runs,
    unused,
)
from tests.hdl.stream.frames import frames
from tests.support import new_seed, slow

FORMATS = [(Bf16(), 256), (Fp16(), 256), *slow((Bf16(), 512), (Fp16(), 512))]
STOCHASTIC = [
    (Fp16(Rounding.STOCHASTIC), 256),
    *slow((Fp16(Rounding.STOCHASTIC), 512), (Bf16(Rounding.STOCHASTIC), 256), (Bf16(Rounding.STOCHASTIC), 512)),
]


def words(rng, count):
    """Words of every exponent of binary16, and any bits; some fractions are ties of either format."""
    values = [
        rng.getrandbits(1) << 31
        | rng.randrange(98, 146) << 23
        | rng.getrandbits(23) & rng.choice([-1, -1 << 12])
        if rng.random() < 0.8
        else rng.getrandbits(32) & rng.choice([-1, -1 << 15, 0x807FFFFF])
        for _ in range(count)
    ]
    return np.array(values, dtype="<u4").tobytes()


@pytest.mark.parametrize("stall", [0.4, *slow(0.0)])
@pytest.mark.parametrize(("config", "width"), FORMATS, ids=str)
def test_compressor_gives_the_golden_bytes(config, width, stall):
    seed = new_seed()
    rng = random.Random(seed)
    sent = [*random_frames(rng, 2), *random_frames(rng, 2, runs), *random_frames(rng, 3, words)]
    log = compress(config, width, sent, stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == [encoded(frame, config) for frame in sent]


@pytest.mark.parametrize("stall", [0.4, *slow(0.0)])
@pytest.mark.parametrize(("config", "width"), STOCHASTIC, ids=str)
def test_random_bits_begin_with_the_seed_and_go_on_from_frame_to_frame(config, width, stall):
    seed = new_seed()
    rng = random.Random(seed)
    sent = [words(rng, 200), *random_frames(rng, 3, words), bytes(4), words(rng, 5)]
    first = rng.randrange(1, 1 << 32)
    log = compress(config, width, sent, stall=stall, seed=seed, rounding_seed=first)
    expected = encoded_in_sequence(sent, config, width, first)
    assert frames(payload for _, payload in log["o"]) == expected


@pytest.mark.parametrize("stall", [0.4, *slow(0.0)])
@pytest.mark.parametrize(("config", "width"), FORMATS, ids=str)
def test_decompressor_gives_the_golden_values(config, width, stall):
    """Any bytes are a compressed stream, too; a frame may end within a value."""
    seed = new_seed()
    rng = random.Random(seed)
    sent = random_frames(rng, 4, words)
    streams, expected = [encoded(frame, config) for frame in sent], [decoded(frame, config) for frame in sent]
    noise = rng.randbytes(2 * 150)
    streams.append(noise)
    expected.append(half.decode(noise, 150, config).astype("<f4").tobytes())
    log = decompress(config, width, streams, [len(frame) for frame in expected], stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == expected
    assert errors_of(log) == [False] * len(expected)


@pytest.mark.parametrize(
    ("config", "width", "stall"),
    [(Bf16(), 256, 0.0), *slow((Fp16(), 512, 0.4), (Bf16(), 512, 0.4), (Fp16(), 256, 0.0))],
    ids=str,
)
def test_a_stream_that_is_too_short_is_an_error_and_one_too_long_is_cut(config, width, stall):
    """Of each length around what the values need; the next frames are whole."""
    seed = new_seed()
    sent, streams, errors = around_the_length(random.Random(seed), config, width, words)
    log = decompress(config, width, streams, [len(frame) for frame in sent], stall=stall, seed=seed)
    got = frames(payload for _, payload in log["o"])
    assert errors_of(log) == errors
    assert [len(frame) for frame in got] == [len(frame) for frame in sent]
    whole = [n for n, error in enumerate(errors) if not error]
    assert [got[n] for n in whole] == [decoded(sent[n], config) for n in whole]


@pytest.mark.parametrize(
    ("config", "width"), [(Bf16(), 256), *slow((Fp16(), 512), (Fp16(Rounding.STOCHASTIC), 256))], ids=str
)
def test_compressor_latency_and_rate(config, width):
    """Of two words of values, which fill a word of codes; then a long frame, a word a cycle."""
    log = compress(config, width, [bytes(width // 4), bytes(5 * width)])  # 40 words
    taken = [cycle for cycle, _ in log["i"]]
    assert log["o"][0][0] - taken[1] == 6 == latencies(config, width)[0]
    assert taken == list(range(taken[0], taken[0] + 42))
    assert len(log["o"]) == 21


@pytest.mark.parametrize(
    ("config", "width", "cycles"), [(Bf16(), 256, 4), *slow((Fp16(), 512, 6), (Fp16(), 256, 6))]
)
def test_decompressor_latency_and_rate(config, width, cycles):
    frame = gradients(random.Random(new_seed()), 8 * 64)
    log = decompress(config, width, [encoded(frame, config)] * 3, [len(frame)] * 3)
    given = [cycle for cycle, _ in log["o"]]
    gaps = [b - a for a, b in pairwise(given)]
    each = len(frame) * 8 // width
    assert given[0] - log["i"][0][0] == cycles == latencies(config, width)[1]
    assert all(gap == 1 for n, gap in enumerate(gaps, 1) if n % each)
    assert all(gap <= 2 for n, gap in enumerate(gaps, 1) if n % each == 0)


def test_only_stochastic_rounding_has_a_seed():
    assert "seed" not in unused(make_compressor(Bf16(), 256)).signature.members
    assert "seed" in unused(make_compressor(Fp16(Rounding.STOCHASTIC), 256)).signature.members


@pytest.mark.parametrize("component", [HalfCompressor, HalfDecompressor])
def test_bad_parameters_are_refused(component):
    for bad, message in [
        ({"width": 128}, "width must be 256 or 512 bits, not 128"),
        ({"codec": Codec.BFP}, "codec must be bf16 or fp16, not bfp"),
        ({"codec": Codec.NONE}, "codec must be bf16 or fp16, not none"),
    ]:
        with pytest.raises(ValueError, match=message):
            component(**bad)
