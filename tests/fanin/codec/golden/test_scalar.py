"""The codecs' NumPy against their scalar reading, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.codec.facts import (
    BLOCKS,
    GROUPS,
    MAX_BOUND,
    MAX_EXPONENT,
    MAX_OFFSET,
    MIN_BOUND,
    MIN_EXPONENT,
    MX_BLOCKS,
    Bf16,
    Bfp,
    Fp16,
    Inceptionn,
    Mode,
    Mx,
)
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import bfp, codecs, inceptionn, scalar
from fanin.codec.golden.samples import samples


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("bound", range(MIN_BOUND, MAX_BOUND + 1))
def test_numpy_is_the_scalar_reading_of_inceptionn(mode, bound):
    own = samples(6000, bound)
    for group in GROUPS:
        config = Inceptionn(bound, mode, group)
        bits = own.view(np.uint32).tolist()
        assert inceptionn.encode(own, config) == scalar.inceptionn_encode(bits, config)
    assert inceptionn.roundtrip(own, config).view(np.uint32).tolist() == scalar.inceptionn_roundtrip(
        bits, config
    )


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("mantissa", [3, 7, 8, 15])
def test_numpy_is_the_scalar_reading_of_bfp(block, mantissa):
    own, config = samples(5003, block + mantissa), Bfp(block, mantissa)
    bits = own.view(np.uint32).tolist()
    assert bfp.encode(own, config) == scalar.bfp_encode(bits, config)
    assert bfp.roundtrip(own, config).view(np.uint32).tolist() == scalar.bfp_roundtrip(bits, config)


@pytest.mark.parametrize("offset", [0, 7, MAX_OFFSET])
@pytest.mark.parametrize("exponent", range(MIN_EXPONENT, MAX_EXPONENT))
def test_numpy_is_the_scalar_reading_of_narrow_exponents(exponent, offset):
    """Values of all exponents, so that most blocks are above the range or below it."""
    for block, mantissa in ((4, 7), (4, 15), (16, 3)):
        config = Bfp(block, mantissa, exponent, offset)
        scales = np.exp2(np.random.default_rng(exponent).uniform(-50, 20, 2003)).astype(np.float32)
        own = np.concatenate([samples(3000, exponent), scales])
        bits = own.view(np.uint32).tolist()
        assert bfp.encode(own, config) == scalar.bfp_encode(bits, config)
        assert bfp.roundtrip(own, config).view(np.uint32).tolist() == scalar.bfp_roundtrip(bits, config)
        assert (
            bfp.decode(bfp.encode(own, config), len(own), config).tobytes()
            == bfp.roundtrip(own, config).tobytes()
        )


NARROW = [*(Mx(element, block) for element in Element for block in MX_BLOCKS), Bf16(), Fp16()]


def assert_equals_the_scalar_reading(own, config, seed):
    bits = own.view(np.uint32).tolist()
    stream = codecs.encode(own, config, seed)
    assert stream == scalar.encode(bits, config, seed)
    received = codecs.roundtrip(own, config, seed)
    assert received.view(np.uint32).tolist() == scalar.roundtrip(bits, config, seed)
    assert codecs.decode(stream, len(own), config).tobytes() == received.tobytes()
    assert codecs.decode_prefix(stream, len(own), config)[1] == len(stream) == config.stream_limits(len(own))[0]


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("config", NARROW, ids=str)
def test_numpy_is_the_scalar_reading_of_narrow_formats(config, rounding):
    """Values of all exponents; also blocks around the least scale, among them blocks of subnormals alone."""
    rng = np.random.default_rng(config.code_bits)
    small = (rng.standard_normal(1000) * np.exp2(rng.uniform(-150, -95, 1000 // 40)).repeat(40)).astype(
        np.float32
    )
    own = np.concatenate([samples(2003, config.code_bits), small])
    assert_equals_the_scalar_reading(own, replace(config, rounding=rounding), seed=0xC0DE)


FLOAT_BITS_OF_BLOCKS = st.integers(0, 255).flatmap(
    lambda top: st.lists(
        st.builds(
            lambda sign, below, fraction: sign << 31 | max(top - below, 0) << 23 | fraction,
            st.integers(0, 1),
            st.integers(0, 40),
            st.integers(0, 2**23 - 1) | st.sampled_from([0, 1, 0x400000, 0x3FFFFF, 0x500000, 0x7FFFFF]),
        ),
        min_size=1,
        max_size=70,
    )
)


@settings(max_examples=300, deadline=None)
@given(
    bits=FLOAT_BITS_OF_BLOCKS,
    config=st.sampled_from(NARROW),
    rounding=st.sampled_from(Rounding),
    seed=st.integers(1, 2**32 - 1),
)
def test_numpy_is_the_scalar_reading_of_any_block(bits, config, rounding, seed):
    """Blocks around every exponent, with values far below the largest."""
    own = np.array(bits, dtype=np.uint32).view(np.float32)
    assert_equals_the_scalar_reading(own, replace(config, rounding=rounding), seed)


def test_samples_have_what_they_promise():
    own = samples(200_000, 3).view(np.uint32)
    assert len(np.unique(own >> 23)) == 512  # signs and exponents
    for bits in (0, 1, 0x007FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F800000, 0x3F7FFFFF):
        assert bits in own
    assert len(samples(1, 0)) == 1
