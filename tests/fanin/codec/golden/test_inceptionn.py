"""INCEPTIONN's NumPy: the strict mode's promise in exact fractions, and its byte stream.

That both modes are algorithms 2 and 3, value by value, is shown in test_codec_scalar.
"""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.base.errors import InputError
from fanin.codec.facts import GROUPS, MAX_BOUND, MIN_BOUND, SHORT_FRACTION, TAG_BYTES, Inceptionn, Mode, Tag
from fanin.codec.golden import inceptionn
from fanin.codec.golden.samples import samples

words = st.integers(0, 2**32 - 1)
bounds = st.integers(MIN_BOUND, MAX_BOUND)
near_1 = st.builds(  # where the forms differ
    lambda sign, exponent, fraction, zeros: sign << 31 | exponent << 23 | fraction >> zeros << zeros,
    st.integers(0, 1),
    st.integers(108, 128),
    st.integers(0, 2**23 - 1),
    st.integers(0, 23),
)


def floats(bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


def exact(value):
    return Fraction(float(value))


def cut_off(value, kept):
    """A magnitude below 1, cut off behind ``kept`` fraction bits."""
    unit = Fraction(1, 2**kept)
    return abs(exact(value)) // unit * unit


@given(near_1 | words, bounds)
def test_strict_mode_takes_the_shortest_form_within_the_bound(bits, bound):
    value = floats([bits])[0]
    limit = Fraction(1, 2**bound)
    (tag,), _ = inceptionn.compress(floats([bits]), Inceptionn(bound=bound))
    if not abs(value) < 1:
        assert tag == Tag.RAW
        return
    magnitude = abs(exact(value))
    decoded = {Tag.ZERO: Fraction(0)} | {form: cut_off(value, kept) for form, kept in SHORT_FRACTION.items()}
    assert tag == next(form for form in decoded if magnitude - decoded[form] <= limit)
    got = inceptionn.roundtrip(floats([bits]), Inceptionn(bound=bound))[0]
    assert abs(exact(got)) == decoded[tag]
    assert got == 0 or np.signbit(got) == np.signbit(value)


@given(words, bounds, st.sampled_from(Mode))
def test_what_is_not_below_1_and_what_is_no_number_stays_as_it_is(bits, bound, mode):
    large = bits & 1 << 31 | (127 + (bits >> 23) % 129) << 23 | bits & 0x7FFFFF
    got = inceptionn.roundtrip(floats([large]), Inceptionn(bound=bound, mode=mode))
    assert got.view(np.uint32)[0] == large


@given(st.integers(0, 0x7FFFFF), st.integers(0, 1), bounds, st.sampled_from(Mode))
def test_zeros_and_subnormals_become_positive_zero(fraction, sign, bound, mode):
    got = inceptionn.roundtrip(floats([sign << 31 | fraction]), Inceptionn(bound=bound, mode=mode))
    assert got.view(np.uint32)[0] == 0


def test_published_mode_breaks_its_bound_eightfold_and_loses_a_value():
    config = Inceptionn(bound=10, mode=Mode.PUBLISHED)
    worst = floats([0x3C7FFFFF])  # just below 2^-6: its 8-bit form is 2^-7
    assert exact(worst[0]) - exact(inceptionn.roundtrip(worst, config)[0]) > Fraction(7, 2**10)
    assert inceptionn.roundtrip(floats([0x3BFFFFFF]), config)[0] == 0  # just below 2^-7


@given(st.lists(near_1 | words, max_size=50), bounds, st.sampled_from(Mode), st.sampled_from(GROUPS))
def test_a_stream_decodes_to_the_round_trip_of_its_values(bits, bound, mode, group):
    config = Inceptionn(bound=bound, mode=mode, group=group)
    values = floats(bits)
    stream = inceptionn.encode(values, config)
    got = inceptionn.decode(stream, len(values), config)
    assert got.tobytes() == inceptionn.roundtrip(values, config).tobytes()


@given(st.lists(near_1 | words, min_size=1, max_size=50), bounds, st.sampled_from(Mode))
def test_what_is_delivered_has_the_tags_of_the_compressor(bits, bound, mode):
    config = Inceptionn(bound=bound, mode=mode)
    tags, sent = inceptionn.compress(floats(bits), config)
    received, found = inceptionn.deliver(floats(bits), config)
    assert found.tolist() == tags.tolist()
    assert received.tobytes() == inceptionn.decompress(tags, sent).tobytes()


@pytest.mark.parametrize("group", GROUPS)
def test_a_worked_stream(group):
    values = floats([0x3F800000, 0x3F000000, 0, 0xBF000001])  # 1, 0.5, 0, just below -0.5
    stream = inceptionn.encode(values, Inceptionn(bound=10, group=group))
    tags = bytes([Tag.RAW | Tag.BITS8 << 2 | Tag.ZERO << 4 | Tag.BITS8 << 6]) + bytes(group // 4 - 1)
    assert stream == tags + bytes([0, 0, 0x80, 0x3F, 0x40, 0xC0])


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 100])
def test_a_stream_is_as_long_as_its_tags_say(count, group):
    config = Inceptionn(group=group)
    values = samples(count, 1) if count else floats([])
    tags, _ = inceptionn.compress(values, config)
    groups = -(-count // group)
    size = groups * config.tag_bytes + sum(TAG_BYTES[Tag(tag)] for tag in tags)
    assert len(inceptionn.encode(values, config)) == size


@pytest.mark.parametrize("group", GROUPS)
def test_streams_that_are_too_short_or_too_long_are_refused(group):
    config = Inceptionn(group=group)
    stream = inceptionn.encode(samples(3 * group - 1, 2), config)
    for size in range(len(stream)):
        with pytest.raises(InputError, match="it ends in group"):
            inceptionn.decode(stream[:size], 3 * group - 1, config)
    with pytest.raises(InputError, match="2 bytes after its 3 groups"):
        inceptionn.decode(stream + b"\0\0", 3 * group - 1, config)
    with pytest.raises(InputError, match="it ends in group 3 of 4"):
        inceptionn.decode(stream, 3 * group + 1, config)


@given(st.binary(max_size=200), st.integers(0, 60), st.sampled_from(GROUPS))
def test_noise_decodes_to_what_was_asked_for_or_is_refused(noise, count, group):
    with suppress(InputError):
        assert len(inceptionn.decode(noise, count, Inceptionn(group=group))) == count
