"""The golden BFP codec against exact fractions, and its refusals."""

import random
from fractions import Fraction

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import BLOCKS, Bfp
from fanin.codec.golden import bfp
from tests.support import new_seed

INFINITY, NAN = 0x7F800000, 0x7FC00000


def block_of(rng, size):
    base = rng.randrange(1, 255)
    exponents = [min(255, max(0, base - rng.choice([0, 0, 1, 2, 3, 7, 15, 16, 30]))) for _ in range(size)]
    fractions = [rng.getrandbits(23) & rng.choice([0x7FFFFF, 0x7F0000, 0x7FFF00, 0]) for _ in range(size)]
    return [rng.getrandbits(1) << 31 | e << 23 | f for e, f in zip(exponents, fractions, strict=True)]


def magnitude_of(bits):
    """|x| of a finite value, exactly; subnormals are 0."""
    exponent = bits >> 23 & 255
    return (
        Fraction(0) if exponent == 0 else Fraction(1 << 23 | bits & 0x7FFFFF) * Fraction(2) ** (exponent - 150)
    )


def expected(block, mantissa):
    """Bits that a block decodes to, after the table of docs/systems/codec.md."""
    shared = max(bits >> 23 & 255 for bits in block)
    unit = Fraction(2) ** (shared - 127 - (mantissa - 1))
    most = (1 << mantissa) - 1 if shared < 255 else (1 << mantissa - 1) - 1
    values = []
    for bits in block:
        if bits >> 23 & 255 == 255:
            values.append(NAN if bits & 0x7FFFFF else bits)
            continue
        rounded = min(round(magnitude_of(bits) / unit), most) * unit  # round() of a Fraction: ties to even
        values.append(0 if rounded < Fraction(2) ** -126 else bits >> 31 << 31 | _pack(rounded))
    return values


def _pack(value):
    exponent = 127
    while value >= 2:
        value, exponent = value / 2, exponent + 1
    while value < 1:
        value, exponent = value * 2, exponent - 1
    return exponent << 23 | int((value - 1) * (1 << 23))


def roundtrip(values, config):
    floats = np.array(values, dtype=np.uint32).view(np.float32)
    return bfp.roundtrip(floats, config).view(np.uint32).tolist()


@pytest.mark.parametrize("mantissa", [3, 4, 7, 8, 15])
@pytest.mark.parametrize("block", BLOCKS)
def test_values_are_the_nearest_multiples_of_the_blocks_unit(block, mantissa):
    rng = random.Random(new_seed())
    for _ in range(20):
        values = block_of(rng, block)
        assert roundtrip(values, Bfp(block, mantissa)) == expected(values, mantissa)


@pytest.mark.parametrize("mantissa", [3, 7, 15])
def test_special_values_and_their_neighbours(mantissa):
    rng = random.Random(new_seed())
    special = [INFINITY, 1 << 31 | INFINITY, NAN, 0xFF800001, 0x7F7FFFFF, 0xFF7FFFFF, 0, 1 << 31, 1, 0x807FFFFF]
    for _ in range(100):
        values = [rng.choice([*special, *block_of(rng, 2)]) for _ in range(4)]
        assert roundtrip(values, Bfp(4, mantissa)) == expected(values, mantissa)


@pytest.mark.parametrize(
    ("value", "magnitude"),
    [(1.0, 4), (1.125, 4), (1.375, 6), (1.25, 5), (1.875, 7), (1.99, 7), (0.125, 0), (0.375, 2)],
)
def test_ties_go_to_even_and_the_largest_is_kept(value, magnitude):
    """3 bits beside a 1: units of a quarter."""
    _, codes = bfp.compress(np.array([1, -value, 0, 0], dtype=np.float32), Bfp(4, 3))
    assert codes.tolist()[1] == (magnitude and 8 | magnitude)


def test_a_block_that_is_flushed_is_all_zeros():
    tiny = np.array([1, 0x807FFFFF, 1 << 31, 0], dtype=np.uint32).view(np.float32)
    assert bfp.encode(tiny, Bfp(4, 7)) == bytes(5)


@pytest.mark.parametrize("config", [Bfp(4, 4), Bfp(16, 7), Bfp(64, 3), Bfp(4, 6, 5), Bfp(16, 7, 1, 9)], ids=str)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 17, 64, 100])
def test_the_stream_decodes_to_the_round_trip(config, count):
    rng = random.Random(new_seed())
    values = np.array(block_of(rng, count), dtype=np.uint32).view(np.float32)
    stream = bfp.encode(values, config)
    assert len(stream) == -(-(-(-count // config.block) * config.block_bits) // 8)
    assert bfp.decode(stream, count, config).tobytes() == bfp.roundtrip(values, config).tobytes()


def roundtrip_of(values, config):
    return bfp.roundtrip(np.array(values, dtype=np.float32), config).tolist()


def test_five_bits_have_the_scales_of_half_precision():
    """2^-15 to 2^15; below, a block is as fixed point; above, values become the largest one."""
    config = Bfp(4, 7, 5)
    assert (config.lowest - 127, config.highest - 127) == (-15, 15)
    unit, largest = 2.0**-21, 127 / 64 * 2.0**15
    assert roundtrip_of([2.0**-15, unit, 1.5 * unit, 0.5 * unit], config) == [2.0**-15, unit, 2 * unit, 0]
    assert roundtrip_of([-3 * unit, unit, 1.5 * unit, 0.4 * unit], config) == [-3 * unit, unit, 2 * unit, 0]
    assert roundtrip_of([65280, -(2.0**40), 1000, 300], config) == [largest, -largest, 1024, 512]


@pytest.mark.parametrize("exponent", range(1, 8))
@pytest.mark.parametrize("offset", [0, 5, 31])
def test_error_is_at_most_a_unit_in_range_and_half_a_unit_below_it(exponent, offset):
    """As docs/systems/codec.md states it, on blocks of every scale."""
    rng = np.random.default_rng(new_seed())
    config = Bfp(4, 7, exponent, offset)
    lowest, highest = 2.0 ** (config.lowest - 127), 2.0 ** (config.highest - 127)
    scales = np.exp2(rng.uniform(np.log2(lowest) - 12, np.log2(highest) + 1, (500, 1)))
    values = (rng.uniform(-1, 1, (500, 4)) * scales).astype(np.float32)
    received = bfp.roundtrip(values, config).astype(np.float64)
    scale = np.exp2(np.floor(np.log2(np.abs(values).max(axis=1, keepdims=True))))
    unit = np.maximum(scale, lowest) * 2.0**-6
    error = np.abs(received - values)
    assert (error < unit).all()
    below = (scale < lowest).reshape(-1)
    assert below.any()
    assert (error[below] <= unit[below] / 2).all()


@pytest.mark.parametrize("exponent", range(1, 9))
def test_specials_have_the_last_code_and_zeros_none_but_zeros(exponent):
    config = Bfp(4, 7, exponent)
    special = np.array([INFINITY, NAN, 1 << 31 | INFINITY, 0x40000000], dtype=np.uint32).view(np.float32)
    assert bfp.compress(special, config)[0].tolist() == [2**exponent - 1]
    assert bfp.roundtrip(special, config).view(np.uint32).tolist() == [INFINITY, NAN, 1 << 31 | INFINITY, 0]
    finite = np.array([3e38, -3e38, 0, 0], dtype=np.float32)
    assert bfp.compress(finite, config)[0].tolist() == [2**exponent - 2]
    tiny = np.array([1, 0x807FFFFF, 1 << 31, 0], dtype=np.uint32).view(np.float32)
    assert not any(bfp.encode(tiny, config))


@pytest.mark.parametrize("change", [-1, 1])
def test_a_stream_of_the_wrong_length_is_refused(change):
    with pytest.raises(InputError, match=f"compressed stream: {34 + change} bytes, but 2 blocks take 34"):
        bfp.decode(bytes(34 + change), 17, Bfp(16, 7))
