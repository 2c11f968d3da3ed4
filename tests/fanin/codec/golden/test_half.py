"""bfloat16 and binary16 against ml_dtypes and NumPy; special values, layout, refusals."""

import ml_dtypes
import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.codec.facts import Bf16, Fp16
from fanin.codec.formats import Rounding
from fanin.codec.golden import half
from fanin.codec.golden.samples import corners
from tests.support import new_seed

TYPES = {Bf16(): ml_dtypes.bfloat16, Fp16(): np.float16}
QUIET = {Bf16(): 0x7FC0, Fp16(): 0x7E00}


@pytest.mark.parametrize("config", TYPES, ids=str)
def test_every_code_decodes_exactly(config):
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        expected = codes.view(TYPES[config]).astype(np.float32).view(np.uint32)
    is_nan = expected & 0x7FFFFFFF > 0x7F800000
    assert (half.decompress(codes, config).view(np.uint32) == np.where(is_nan, 0x7FC00000, expected)).all()


def assert_equals_the_type(bits, config):
    values = bits.view(np.float32)
    codes = half.compress(values, config)
    with np.errstate(all="ignore"):
        expected = values.astype(TYPES[config]).view(np.uint16)
    assert (codes == np.where(np.isnan(values), np.uint16(QUIET[config]), expected)).all()


def bits_of_all_kinds(count, seed):
    """Random bits, and random bits with the exponents of binary16."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)
    half_range = (bits[: count // 2] >> 23 & 63) + 90 << 23
    return np.concatenate([bits[: count // 2] & 0x807FFFFF | half_range, bits[count // 2 :]])


@pytest.mark.parametrize("config", TYPES, ids=str)
def test_values_are_rounded_as_in_ml_dtypes_and_numpy(config):
    assert_equals_the_type(np.concatenate([corners(), bits_of_all_kinds(1_000_000, new_seed())]), config)


@pytest.mark.slow
@pytest.mark.parametrize("config", TYPES, ids=str)
def test_a_hundred_million_values_are_rounded_as_in_ml_dtypes_and_numpy(config):
    seed = new_seed()
    for part in range(50):
        assert_equals_the_type(bits_of_all_kinds(2_000_000, (seed, part)), config)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("config", [Bf16, Fp16])
def test_values_of_the_format_are_kept(config, rounding):
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = half.decompress(codes, config(rounding))
    assert half.roundtrip(values, config(rounding), 3).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("config", "largest", "beyond"), [(Bf16(), 0x7F7F0000, 0x7F7F8000), (Fp16(), 0x477FE000, 0x477FF000)]
)
def test_overflow_is_infinity_from_half_a_step_above_the_largest(config, largest, beyond):
    bits = np.array([largest, beyond - 1, beyond, beyond | 1 << 31, 0x7F800000], dtype=np.uint32)
    expected = [largest, largest, 0x7F800000, 0xFF800000, 0x7F800000]
    assert half.roundtrip(bits.view(np.float32), config).view(np.uint32).tolist() == expected


@pytest.mark.parametrize("config", [Bf16(Rounding.STOCHASTIC), Fp16(Rounding.STOCHASTIC)], ids=str)
def test_stochastic_rounding_keeps_special_values(config):
    bits = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF], dtype=np.uint32).repeat(64)
    expected = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00000], dtype=np.uint32).repeat(
        64
    )
    assert half.roundtrip(bits.view(np.float32), config, 5).view(np.uint32).tolist() == expected.tolist()


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("config", [Bf16, Fp16])
def test_a_value_takes_two_bytes_the_lower_first(config, rounding):
    values = np.linspace(-2, 3, 33, dtype=np.float32)
    stream = half.encode(values, config(rounding), 3)
    assert len(stream) == 66 == config().stream_limits(33)[1]
    assert np.frombuffer(stream, "<u2").tolist() == half.compress(values, config(rounding), 3).tolist()
    assert (
        half.decode(stream, 33, config(rounding)).tobytes()
        == half.roundtrip(values, config(rounding), 3).tobytes()
    )


def test_the_shape_is_kept():
    values = np.linspace(-2, 3, 36, dtype=np.float32).reshape(3, 12)
    assert half.roundtrip(values, Bf16(Rounding.STOCHASTIC)).shape == (3, 12)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_stream_of_the_wrong_length_is_refused(change):
    with pytest.raises(InputError, match=f"compressed stream: {66 + change} bytes, but 33 values take 66"):
        half.decode(bytes(66 + change), 33, Bf16())


@pytest.mark.parametrize("config", [Bf16, Fp16])
def test_parameters_are_two_bytes(config):
    for rounding in Rounding:
        assert config.unpack(config(rounding).pack()) == config(rounding)
    for parameters in ((1, 0), (0, 1), (0, 0x81)):
        with pytest.raises(ValueError, match="parameters must be 0 and 0 or 128"):
            config.unpack(parameters)
    with pytest.raises(ValueError, match="rounding must be nearest or stochastic, not 'nearest'"):
        config("nearest")
