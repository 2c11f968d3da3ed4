"""The codecs' NumPy against their scalar reading, bit for bit."""

import numpy as np
import pytest

from fanin.codec.facts import (
    BLOCKS,
    GROUPS,
    MAX_BOUND,
    MAX_EXPONENT,
    MAX_OFFSET,
    MIN_BOUND,
    MIN_EXPONENT,
    Bfp,
    Inceptionn,
    Mode,
)
from fanin.codec.golden import bfp, inceptionn, scalar
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


def test_samples_have_what_they_promise():
    own = samples(200_000, 3).view(np.uint32)
    assert len(np.unique(own >> 23)) == 512  # signs and exponents
    for bits in (0, 1, 0x007FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F800000, 0x3F7FFFFF):
        assert bits in own
    assert len(samples(1, 0)) == 1
