"""MX against ml_dtypes' elements, torchao's and gfloat's blocks; special values, layout, refusals."""

import ml_dtypes
import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import MX_BLOCKS, Mx
from fanin.codec.formats import SCALE_NAN, Element, Rounding
from fanin.codec.golden import mx
from fanin.codec.golden.samples import samples
from tests.fanin.codec.golden.published import (
    TORCHAO_ELEMENTS,
    gfloat_compress,
    torchao_compress,
    torchao_decompress,
)
from tests.support import new_seed

ML_TYPES = {
    Element.E4M3: ml_dtypes.float8_e4m3fn,
    Element.E5M2: ml_dtypes.float8_e5m2,
    Element.E3M2: ml_dtypes.float6_e3m2fn,
    Element.E2M3: ml_dtypes.float6_e2m3fn,
    Element.E2M1: ml_dtypes.float4_e2m1fn,
}
INFINITY, NAN = 0x7F800000, 0x7FC00000
EMAX = {"e4m3": 8, "e5m2": 15, "e3m2": 4, "e2m3": 2, "e2m1": 2, "int8": 0}  # of the specification
LARGEST = {"e4m3": 448, "e5m2": 57344, "e3m2": 28, "e2m3": 7.5, "e2m1": 6, "int8": 127 / 64}


def floats(bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


def received_bits(values, config):
    return mx.roundtrip(np.asarray(values, dtype=np.float32), config).view(np.uint32).tolist()


@pytest.mark.parametrize("element", ML_TYPES)
def test_every_code_decodes_as_in_ml_dtypes(element):
    codes = np.arange(1 << element.layout.bits, dtype=np.uint8)
    blocks = np.resize(codes, max(32, len(codes)))
    values = mx.decompress(np.full(len(blocks) // 32, 127, dtype=np.uint8), blocks, Mx(element))[: len(codes)]
    expected = codes.view(ML_TYPES[element]).astype(np.float32)
    is_nan = np.isnan(expected)
    assert values[~is_nan].tobytes() == expected[~is_nan].tobytes()
    assert (values[is_nan].view(np.uint32) == NAN).all()


def test_every_code_of_int8_is_a_multiple_of_a_64th():
    codes = np.arange(256, dtype=np.uint8)
    values = mx.decompress(np.full(8, 127, dtype=np.uint8), codes, Mx(Element.INT8))
    assert values.tobytes() == (codes.view(np.int8) / np.float32(64)).tobytes()


def assert_elements_equal_ml_dtypes(element, count, seed):
    """Blocks whose first value gives the scale 1, so that the others are the elements' inputs."""
    rng = np.random.default_rng(seed)
    largest = (127 + EMAX[element] << 23) | (1 << 23) - 1  # the largest with that scale
    below = rng.integers(0, largest + 1, count // 2, dtype=np.uint32)
    near = largest - (np.abs(rng.standard_normal(count - count // 2)) * 2**26).astype(np.uint32)
    bits = rng.permutation(np.concatenate([below, near])) | rng.integers(0, 2, count, dtype=np.uint32) << 31
    blocks = floats(np.resize(bits, -(-count // 31) * 31)).reshape(-1, 31)
    blocks = np.concatenate([np.full((len(blocks), 1), 2.0 ** EMAX[element], dtype=np.float32), blocks], axis=1)
    scales, codes = mx.compress(blocks, Mx(element))
    assert (scales == 127).all()
    limited = np.clip(blocks.reshape(-1), -LARGEST[element], LARGEST[element])  # ml_dtypes has no saturation
    assert codes.tobytes() == limited.astype(ML_TYPES[element]).tobytes()


@pytest.mark.parametrize("element", ML_TYPES)
def test_elements_are_rounded_as_in_ml_dtypes(element):
    assert_elements_equal_ml_dtypes(element, 1_000_000, new_seed())


@pytest.mark.slow
@pytest.mark.parametrize("element", ML_TYPES)
def test_a_hundred_million_elements_are_rounded_as_in_ml_dtypes(element):
    seed = new_seed()
    for part in range(50):
        assert_elements_equal_ml_dtypes(element, 2_000_000, (seed, part))


def flushed(values):
    return np.where(np.abs(values) < 2.0**-126, np.copysign(0, values), values).astype(np.float32)


def assert_blocks_equal_torchao(values, element, block):
    """But for the three differences that docs/systems/codec.md names."""
    scales, codes = mx.compress(values, Mx(element, block))
    expected_scales, expected = torchao_compress(flushed(values), element, block)  # ours flushes subnormals
    assert scales.tobytes() == expected_scales.tobytes()
    codes, expected = codes.reshape(-1, block), expected.reshape(-1, block)
    is_nan, is_lowest = scales == SCALE_NAN, scales == 0
    assert (codes[is_nan] == 0).all()  # torchao converts the elements of a block of NaN, too
    regular = ~is_nan & ~is_lowest
    assert (codes[regular] == expected[regular]).all()
    # With the scale 2^-127 torchao divides by 2^-126.
    lowest = flushed(values).reshape(-1, block)[is_lowest] * np.float32(2)
    doubled_scales, doubled = torchao_compress(lowest.reshape(-1), element, block)
    is_still_lowest = doubled_scales == 0
    assert (codes[is_lowest] == doubled.reshape(-1, block))[is_still_lowest].all()
    return int(regular.sum()), int(is_still_lowest.sum()), int(is_nan.sum())


def values_of_all_kinds(count, rng):
    """Values of all kinds, and blocks around the least scale."""
    small = rng.standard_normal((count // 64, 64)) * np.exp2(rng.uniform(-140, -100, (count // 64, 1)))
    return np.concatenate([samples(count, int(rng.integers(1 << 30))), small.astype(np.float32).reshape(-1)])


@pytest.mark.needs("torchao")
@pytest.mark.parametrize("block", MX_BLOCKS)
@pytest.mark.parametrize("element", TORCHAO_ELEMENTS)
def test_blocks_are_those_of_torchao(element, block):
    rng = np.random.default_rng(new_seed())
    counts = assert_blocks_equal_torchao(values_of_all_kinds(64 * 1000, rng), element, block)
    assert min(counts) > 50


@pytest.mark.slow
@pytest.mark.needs("torchao")
@pytest.mark.parametrize("element", TORCHAO_ELEMENTS)
def test_a_hundred_million_values_have_torchaos_blocks(element):
    rng = np.random.default_rng(new_seed())
    for _ in range(50):
        bits = rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint32)
        assert_blocks_equal_torchao(floats(bits), element, 32)
        assert_blocks_equal_torchao(values_of_all_kinds(500_032, rng), element, 32)


@pytest.mark.needs("torchao")
@pytest.mark.parametrize("element", TORCHAO_ELEMENTS)
def test_blocks_decode_as_in_torchao(element):
    """All codes under all scales; ours flushes subnormal results and has one NaN."""
    scales = np.arange(256, dtype=np.uint8).repeat(8)
    codes = np.resize(np.arange(1 << element.layout.bits, dtype=np.uint8), 256 * 256)
    values, expected = mx.decompress(scales, codes, Mx(element)), torchao_decompress(scales, codes, element, 32)
    assert (
        values.view(np.uint32)
        == np.where(np.isnan(expected), np.uint32(NAN), flushed(expected).view(np.uint32))
    ).all()


@pytest.mark.needs("gfloat")
@pytest.mark.parametrize("element", Element)
def test_blocks_are_those_of_gfloat(element):
    """The judge of int8, too, whose -128 ours does not use."""
    rng = np.random.default_rng(new_seed())
    for _ in range(100):
        values = (rng.standard_normal(32) * np.exp2(rng.uniform(-90, 100))).astype(np.float32)
        values[rng.integers(32)] *= np.float32(1.99)
        scales, codes = mx.compress(values, Mx(element))
        scale, expected = gfloat_compress(values, element)
        assert scales.tolist() == [scale]
        assert codes.tolist() == [
            0x81 if element is Element.INT8 and code == 0x80 else code for code in expected
        ]


@pytest.mark.parametrize("element", Element)
def test_the_scale_moves_the_largest_power_of_two_to_the_formats(element):
    for exponent in (-126, EMAX[element] - 127, EMAX[element] - 126, 0, 5, 127):
        values = np.zeros(32, dtype=np.float32)
        values[[3, 20]] = -1.75 * 2.0**exponent, 2.0**exponent
        scales, _ = mx.compress(values, Mx(element))
        assert scales.tolist() == [max(exponent - EMAX[element], -127) + 127]


@pytest.mark.parametrize("element", Element)
def test_a_value_above_the_largest_element_saturates(element):
    just_below = np.nextafter(np.float32(2 ** (EMAX[element] + 1)), np.float32(0))
    values = np.array([just_below, -just_below, LARGEST[element]] + [0.0] * 29, dtype=np.float32)
    assert mx.roundtrip(values, Mx(element))[:3].tolist() == [
        LARGEST[element],
        -LARGEST[element],
        LARGEST[element],
    ]


@pytest.mark.parametrize("element", Element)
def test_a_nan_makes_its_block_nan_and_no_other(element):
    values = np.ones(96, dtype=np.float32)
    values[40] = -np.float32(np.nan)
    values[41] = np.inf
    scales, codes = mx.compress(values, Mx(element))
    assert scales[1] == SCALE_NAN
    assert not codes[32:64].any()
    assert received_bits(values, Mx(element)) == [0x3F800000] * 32 + [NAN] * 32 + [0x3F800000] * 32


@pytest.mark.parametrize("element", Element)
def test_infinities_are_kept_beside_finite_values(element):
    """The largest element under the scale of 2^128 is above binary32's range; int8 has no such scale."""
    values = np.array([np.inf, -np.inf, 2.0**127, -(2.0**126), 1.0] + [0.0] * 27, dtype=np.float32)
    scales, _ = mx.compress(values, Mx(element))
    received = received_bits(values, Mx(element))
    if element is Element.INT8:
        assert scales.tolist() == [SCALE_NAN]
        assert received == [NAN] * 32
    else:
        assert scales.tolist() == [255 - EMAX[element]]
        assert received == [INFINITY, 1 << 31 | INFINITY, 0x7F000000, 0xFE800000, *[0] * 28]


@pytest.mark.parametrize("element", Element)
def test_zeros_keep_their_sign_but_in_int8(element):
    negative = 0 if element is Element.INT8 else 1 << 31
    subnormal = 0x807FFFFF
    assert received_bits(floats([0, 1 << 31, subnormal, 0x7FFFFF]), Mx(element)) == [0, negative, negative, 0]
    assert mx.compress(floats([1 << 31]), Mx(element))[0].tolist() == [0]
    tiny = np.array([1.0, -(2.0**-40)], dtype=np.float32)  # rounds to -0
    assert received_bits(tiny, Mx(element)) == [0x3F800000, negative]


@pytest.mark.parametrize("element", Element)
def test_subnormal_results_become_zeros_of_their_sign(element):
    """Values just below twice the least normal number, some of which a coarse element rounds below it."""
    layout = element.layout
    codes = np.array([1, 1 | 1 << layout.bits - 1] * 8, dtype=np.uint8)
    if element is Element.INT8:
        codes[1::2] = 0xFF
    received = mx.decompress(np.array([0], dtype=np.uint8), codes, Mx(element, 16)).view(np.uint32).tolist()
    assert received == [0, 1 << 31] * 8


@pytest.mark.parametrize("element", Element)
@pytest.mark.parametrize("block", MX_BLOCKS)
def test_a_second_round_trip_changes_nothing(element, block):
    """The largest value keeps its power of two, since it saturates, and with it the block's scale."""
    own = values_of_all_kinds(64 * 500, np.random.default_rng(new_seed()))
    once = mx.roundtrip(own, Mx(element, block))
    assert mx.roundtrip(once, Mx(element, block)).tobytes() == once.tobytes()
    stochastic = mx.roundtrip(own, Mx(element, block, Rounding.STOCHASTIC), 5)
    assert (
        mx.roundtrip(stochastic, Mx(element, block, Rounding.STOCHASTIC), 6).tobytes() == stochastic.tobytes()
    )


@pytest.mark.parametrize(
    ("element", "size"), [("e4m3", 33), ("e5m2", 33), ("e3m2", 25), ("e2m3", 25), ("e2m1", 17), ("int8", 33)]
)
def test_a_block_is_its_scale_and_its_codes_lowest_bit_first(element, size):
    config = Mx(Element(element))
    values = np.linspace(-3, 4, 32, dtype=np.float32)
    stream = mx.encode(values, config)
    assert len(stream) == size == config.block_bits // 8
    (scale,), codes = mx.compress(values, config)
    assert stream[0] == scale
    number = sum(int(code) << n * config.code_bits for n, code in enumerate(codes))
    assert int.from_bytes(stream[1:], "little") == number


def test_the_last_block_is_padded_with_zeros():
    values = np.linspace(1, 2, 40, dtype=np.float32)
    padded = np.concatenate([values, np.zeros(24, dtype=np.float32)])
    assert mx.encode(values, Mx()) == mx.encode(padded, Mx())


@pytest.mark.parametrize("change", [-1, 1])
def test_a_stream_of_the_wrong_length_is_refused(change):
    with pytest.raises(InputError, match=f"compressed stream: {66 + change} bytes, but 2 blocks take 66"):
        mx.decode(bytes(66 + change), 33, Mx())


@pytest.mark.parametrize(
    ("parameters", "cause"),
    [
        ({"element": "e4m3"}, "element must be one of e4m3, e5m2, e3m2, e2m3, e2m1, int8, not 'e4m3'"),
        ({"block": 8}, "block must be one of 16, 32, 64, not 8"),
        ({"rounding": 1}, "rounding must be nearest or stochastic, not 1"),
    ],
)
def test_bad_parameters_are_refused(parameters, cause):
    with pytest.raises(ValueError, match=cause):
        Mx(**parameters)


@pytest.mark.parametrize("parameters", [(32, 6), (8, 0), (32, 0x86)])
def test_bad_parameter_bytes_are_refused(parameters):
    with pytest.raises(ValueError, match="must be"):
        Mx.unpack(parameters)


def test_every_configuration_has_its_own_two_bytes():
    configs = [Mx(e, b, r) for e in Element for b in MX_BLOCKS for r in Rounding]
    assert [Mx.unpack(config.pack()) for config in configs] == configs
    assert len({config.pack() for config in configs}) == len(configs)
