# amaranth: UnusedElaboratable=no
"""MxCompressor and MxDecompressor against the golden codec: bytes, errors, random bits, latency, throughput."""

import random
from itertools import pairwise

import numpy as np
import pytest

from fanin.codec.facts import MX_BLOCKS, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import mx
from fanin.hdl.codec.make import make_compressor, make_decompressor
from fanin.hdl.codec.mx import MxCompressor, MxDecompressor
from tests.hdl.codec.block_bench import (
    around_the_length,
    compress,
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

WIDTHS = (256, 512)
QUICK = [(Mx(Element.E4M3), 256), (Mx(Element.E2M1, 16), 256), (Mx(Element.INT8, 16), 512)]
EVERY = [(Mx(element, block), width) for element in Element for block in MX_BLOCKS for width in WIDTHS]
FORMATS = [*QUICK, *slow(*(case for case in EVERY if case not in QUICK))]
EVERY_STOCHASTIC = [(Mx(config.element, config.block, Rounding.STOCHASTIC), width) for config, width in EVERY]
STOCHASTIC = [*EVERY_STOCHASTIC[2:3], *slow(*EVERY_STOCHASTIC[:2], *EVERY_STOCHASTIC[3:])]


@pytest.mark.parametrize("stall", [0.4, *slow(0.0)])
@pytest.mark.parametrize(("config", "width"), FORMATS, ids=str)
def test_compressor_gives_the_golden_bytes(config, width, stall):
    seed = new_seed()
    rng = random.Random(seed)
    sent = random_frames(rng, 3) + random_frames(rng, 3, runs)
    log = compress(config, width, sent, stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == [encoded(frame, config) for frame in sent]


@pytest.mark.parametrize("stall", [0.0, *slow(0.4)])  # without stalls, frames wait while blocks are completed
@pytest.mark.parametrize(("config", "width"), STOCHASTIC, ids=str)
def test_random_bits_begin_with_the_seed_and_go_on_from_frame_to_frame(config, width, stall):
    """All bits of a long frame count."""
    seed = new_seed()
    rng = random.Random(seed)
    sent = [gradients(rng, count, specials=0) for count in (33, 41, 150)]
    sent += [*random_frames(rng, 3, runs), bytes(4), gradients(rng, 5, specials=0)]
    first = rng.randrange(1, 1 << 32)
    log = compress(config, width, sent, stall=stall, seed=seed, rounding_seed=first)
    expected = encoded_in_sequence(sent, config, width, first)
    assert frames(payload for _, payload in log["o"]) == expected


@pytest.mark.parametrize("stall", [0.4, *slow(0.0)])
@pytest.mark.parametrize(("config", "width"), FORMATS, ids=str)
def test_decompressor_gives_the_golden_values(config, width, stall):
    """Any bytes are a compressed stream, too."""
    seed = new_seed()
    rng = random.Random(seed)
    sent = random_frames(rng, 3, runs)
    streams = [encoded(frame, config) for frame in sent]
    noise = bytearray(rng.randbytes(len(encoded(bytes(4 * 150), config))))
    noise[:: config.block_bits // 8] = rng.choices(
        [0, 1, 8, 127, 128, 240, 252, 254, 255], k=-(-150 // config.block)
    )
    streams.append(bytes(noise))
    lengths = [*map(len, sent), 4 * 150]
    expected = [
        mx.decode(stream, -(-length // 4), config).astype("<f4").tobytes()[:length]
        for stream, length in zip(streams, lengths, strict=True)
    ]
    log = decompress(config, width, streams, lengths, stall=stall, seed=seed)
    assert frames(payload for _, payload in log["o"]) == expected
    assert errors_of(log) == [False] * len(expected)


@pytest.mark.parametrize("element", list(Element)[:1] + slow(*list(Element)[1:]))
def test_every_code_is_decoded_at_scales_of_every_kind(element):
    config = Mx(element, 16)
    codes = np.arange(1 << config.code_bits, dtype=np.uint8)
    scales = [0, 1, 2, 9, 16, 126, 127, 200, 239, 246, 252, 254, 255]
    blocks = [(scale, row) for scale in scales for row in codes.reshape(-1, 16)]
    stream = b"".join(
        bytes([scale])
        + np.packbits(
            np.unpackbits(row[:, None], axis=1, count=config.code_bits, bitorder="little"), bitorder="little"
        ).tobytes()
        for scale, row in blocks
    )
    length = 4 * 16 * len(blocks)
    log = decompress(config, 512, [stream], [length])
    (got,) = frames(payload for _, payload in log["o"])
    assert got == mx.decode(stream, length // 4, config).astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("config", "width", "stall"),
    [
        (Mx(Element.E2M1, 16), 256, 0.0),
        *slow(
            (Mx(Element.E4M3), 512, 0.4),
            (Mx(Element.E3M2, 16), 512, 0.0),
            (Mx(Element.INT8, 64), 256, 0.4),
            (Mx(Element.E5M2, 64), 512, 0.0),
        ),
    ],
    ids=str,
)
def test_a_stream_that_is_too_short_is_an_error_and_one_too_long_is_cut(config, width, stall):
    """Of each length around what the values need; the next frames are whole."""
    seed = new_seed()
    sent, streams, errors = around_the_length(random.Random(seed), config, width, runs)
    log = decompress(config, width, streams, [len(frame) for frame in sent], stall=stall, seed=seed)
    got = frames(payload for _, payload in log["o"])
    assert errors_of(log) == errors
    assert [len(frame) for frame in got] == [len(frame) for frame in sent]
    for frame, own, error in zip(sent, got, errors, strict=True):
        padded = np.frombuffer(frame + bytes(-len(frame) % 4), dtype="<f4")
        assert error or own == mx.roundtrip(padded, config).tobytes()[: len(frame)]


@pytest.mark.parametrize(
    ("config", "width", "cycles"),
    [
        (Mx(block=16), 256, 13),
        *slow((Mx(block=16), 512, 10), (Mx(), 512, 13), (Mx(), 256, 15), (Mx(Element.E2M1, 64), 512, 15)),
        *slow((Mx(Element.INT8, 64), 256, 19), (Mx(rounding=Rounding.STOCHASTIC), 512, 13)),
    ],
    ids=str,
)
def test_compressor_latency_and_rate(config, width, cycles):
    """Of a frame of one block, whose last piece extends into the last of several words; then a word a cycle."""
    block = bytes(4 * config.block)
    log = compress(config, width, [block, bytes(5 * width)])  # 40 words
    taken = [cycle for cycle, _ in log["i"]]
    first = -(-len(block) * 8 // width)  # words
    last = -(-len(encoded(block, config)) * 8 // width)  # words
    assert log["o"][last - 1][0] - taken[first - 1] == cycles + (last > 1)
    assert latencies(config, width)[0] == cycles
    assert taken == list(range(taken[0], taken[0] + first + 40))


@pytest.mark.parametrize(
    ("config", "width"),
    [(Mx(block=16), 256), *slow((Mx(), 512), (Mx(Element.E3M2, 64), 256), (Mx(Element.INT8), 256))],
    ids=str,
)
def test_decompressor_latency_and_rate(config, width):
    frame = gradients(random.Random(new_seed()), 8 * 64)
    log = decompress(config, width, [encoded(frame, config)] * 3, [len(frame)] * 3)
    given = [cycle for cycle, _ in log["o"]]
    gaps = [b - a for a, b in pairwise(given)]
    each = len(frame) * 8 // width
    assert given[0] - log["i"][0][0] == 6 == latencies(config, width)[1]
    assert all(gap == 1 for n, gap in enumerate(gaps, 1) if n % each)
    assert all(gap <= 2 for n, gap in enumerate(gaps, 1) if n % each == 0)


def test_the_default_takes_33_bytes_for_32_values():
    log = compress(Mx(), 256, [bytes(4 * 32 * 8)])
    assert [len(frame) for frame in frames(payload for _, payload in log["o"])] == [33 * 8]


def test_factories_and_classes_agree():
    config = Mx(Element.E3M2, 64, Rounding.STOCHASTIC)
    made = unused(make_compressor(config, 256))
    assert made.words == unused(MxCompressor(width=256, **vars(config))).words
    assert unused(make_decompressor(config, 256)).block == 64
    assert "seed" in made.signature.members
    assert "seed" not in unused(MxCompressor()).signature.members


@pytest.mark.parametrize("component", [MxCompressor, MxDecompressor])
def test_bad_parameters_are_refused(component):
    for bad, message in [
        ({"width": 128}, "width must be 256 or 512 bits, not 128"),
        ({"block": 8}, "block must be one of 16, 32, 64, not 8"),
        ({"element": "e9m9"}, "element must be one of e4m3, .* not 'e9m9'"),
    ]:
        with pytest.raises(ValueError, match=message):
            component(**bad)
