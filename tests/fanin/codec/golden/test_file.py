"""Files of compressed gradients: the header, the limits of a stream's size, values in pieces."""

import contextlib
import io

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import (
    BLOCKS,
    GROUPS,
    MAX_BOUND,
    MAX_EXPONENT,
    MAX_MANTISSA,
    MAX_OFFSET,
    MIN_BOUND,
    MIN_EXPONENT,
    MIN_MANTISSA,
    Bfp,
    Inceptionn,
    Mode,
)
from fanin.codec.golden import file
from fanin.codec.golden.codecs import decode, encode
from fanin.codec.golden.file import HEADER_BYTES, Header, decode_pieces
from fanin.codec.golden.samples import samples

ALL = [
    *(Inceptionn(b, mode, group) for b in range(MIN_BOUND, MAX_BOUND + 1) for mode in Mode for group in GROUPS),
    *(Bfp(block, mantissa) for block in BLOCKS for mantissa in range(MIN_MANTISSA, MAX_MANTISSA + 1)),
    *(
        Bfp(b, 7, e, o)
        for b in BLOCKS
        for e in range(MIN_EXPONENT, MAX_EXPONENT)
        for o in range(MAX_OFFSET + 1)
    ),
    *(Bfp(16, mantissa, 5) for mantissa in range(MIN_MANTISSA, MAX_MANTISSA + 1) if mantissa != 7),
]
SOME = [
    Inceptionn(),
    Inceptionn(3, Mode.PUBLISHED, 16),
    Bfp(),
    Bfp(4, 4),
    Bfp(64, 15),
    Bfp(4, 6, 5),
    Bfp(16, 7, 3, 8),
]


def test_every_header_is_read_as_it_was_written():
    packed = [Header(config, count).pack() for config in ALL for count in (1, 2**64 - 1)]
    assert {len(data) for data in packed} == {HEADER_BYTES}
    assert len(set(packed)) == len(packed)
    assert [Header.unpack(data) for data in packed] == [Header(c, n) for c in ALL for n in (1, 2**64 - 1)]


def test_bytes_that_are_no_header_are_refused_and_nothing_else_happens():
    rng, read = np.random.default_rng(1), 0
    for _ in range(2000):
        data = bytearray(Header(ALL[rng.integers(len(ALL))], 5).pack())
        data[rng.integers(HEADER_BYTES)] = rng.integers(256)
        with contextlib.suppress(InputError):
            assert Header.unpack(bytes(data)).pack() == data
            read += 1
    assert 500 < read < 1500


@pytest.mark.parametrize("config", SOME)
@pytest.mark.parametrize("count", [1, 7, 8, 16, 63, 1000])
def test_streams_are_within_their_limits(config, count):
    least, most = config.stream_limits(count)
    for values in (np.zeros(count, dtype=np.float32), np.full(count, 3.5, np.float32), samples(count, 1)):
        size = len(encode(values, config))
        assert least <= size <= most
        Header(config, count).check_size(size)
    assert len(encode(np.zeros(count, dtype=np.float32), config)) == least
    for size in (least - 1, most + 1):
        with pytest.raises(InputError, match="bytes after its header, but"):
            Header(config, count).check_size(size)


@pytest.mark.parametrize("config", SOME)
@pytest.mark.parametrize("count", [1, 511, 512, 513, 1024, 1500])
def test_pieces_are_the_whole(monkeypatch, config, count):
    monkeypatch.setattr(file, "PIECE_VALUES", 512)
    values = samples(count, 7)
    stream = encode(values, config)
    assert b"".join(encode(values[first : first + 512], config) for first in range(0, count, 512)) == stream
    pieces = list(decode_pieces(io.BytesIO(stream), Header(config, count)))
    assert {len(piece) for piece in pieces[:-1]} <= {512}
    whole = np.concatenate(pieces).view(np.uint32)
    assert np.array_equal(whole, decode(stream, count, config).view(np.uint32))


@pytest.mark.parametrize("config", SOME)
def test_a_stream_that_ends_early_or_late_is_refused_in_its_piece(monkeypatch, config):
    monkeypatch.setattr(file, "PIECE_VALUES", 512)
    stream = encode(samples(1500, 7), config)
    with pytest.raises(InputError, match="the stream ends within values 1,024 to 1,499"):
        list(decode_pieces(io.BytesIO(stream[:-1]), Header(config, 1500)))
    with pytest.raises(InputError, match="has bytes after its 1,500 values"):
        list(decode_pieces(io.BytesIO(stream + b"\0"), Header(config, 1500)))
