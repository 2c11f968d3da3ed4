"""exp, reciprocal and 1/√x: their errors as docs/reference/numbers.md states them, and their special values."""

import re
from pathlib import Path

import numpy as np
import pytest

from fanin.cnn.golden.functions import RECIPROCAL_SEEDS, RSQRT_SEEDS, exp, reciprocal, rsqrt
from fanin.codec.facts import QUIET_NAN
from tests.fp32_values import SPECIAL
from tests.support import new_seed

PAGE = Path(__file__).parents[4] / "docs/reference/numbers.md"
BINADE = 1 << 23


def _stated(row):
    """The errors of the page's table in the row that begins so."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}"))
    return [float(number) for number in re.findall(r"\d+\.\d+", line.split("|")[2])]


def _significands(every):
    """1.0 up to the next power, every one or some; the ends are among them."""
    if every:
        fractions = np.arange(BINADE, dtype=np.uint32)
    else:
        drawn = np.random.default_rng(new_seed()).integers(0, BINADE, 100_000, dtype=np.uint32)
        fractions = np.unique(np.append(drawn, [0, 1, BINADE - 1]).astype(np.uint32))
    return (fractions | np.uint32(127 << 23)).view(np.float32)


def _error(found, exact):
    """The greatest, in units of the last place of the exact value."""
    return np.max(np.abs(found - exact) / 2.0 ** (np.floor(np.log2(exact)) - 23))


def _hold(found, exact, stated, every):
    """Falling, and no worse than stated; over all inputs no better, either."""
    assert (np.diff(found) <= 0).all()
    assert (0.97 * stated if every else 0) < _error(found, exact) <= stated


def _bits(values):
    return np.asarray(values, dtype=np.float32).view(np.uint32).tolist()


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


@EVERY
def test_error_of_reciprocal(every):
    x = _significands(every)
    _hold(reciprocal(x), 1 / x.astype(float), _stated("reciprocal | 0.")[0], every)


@EVERY
@pytest.mark.parametrize("power", [1, 2])
def test_error_of_rsqrt(every, power):
    x = _significands(every) * np.float32(power)
    _hold(rsqrt(x), 1 / np.sqrt(x.astype(float)), _stated("rsqrt | 0.")[0], every)


@EVERY
def test_error_of_exp(every):
    small, *larger = (*_stated("exp, −1/2"), *_stated("exp, −2^"))
    assert len(larger) == 8
    for k in range(-26 if every else -10, 7):
        x = -_significands(every) * np.float32(2.0**k)
        x = x[x > -87.3]
        y, exact = exp(x), np.exp(x.astype(float))
        stated = small if k < -1 else larger[k + 1]
        _hold(y, exact, stated, every and k >= -1)
        assert np.max(np.abs(y - exact)) * 2.0**24 <= small


def test_every_exponent_gives_what_one_gives():
    """reciprocal and rsqrt of x · 2^k are those of x, scaled; zero where that is below 2^-126."""
    x = _significands(False)[::40]
    for k in range(-126, 128):
        scaled = np.ldexp(x, k)
        exact = np.ldexp(reciprocal(x).astype(float), -k)
        np.testing.assert_array_equal(reciprocal(-scaled), np.where(exact < 2.0**-126, 0, -exact))
        np.testing.assert_array_equal(rsqrt(scaled), np.ldexp(rsqrt(np.ldexp(x, k % 2)), -(k // 2)))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (reciprocal, [np.inf, -np.inf, np.inf, -np.inf, 0.0, -0.0, -1, 0.0, 2.0**-126]),
        (rsqrt, [np.inf, np.inf, np.inf, np.inf, 0.0, np.nan, np.nan, (1 - 2.0**-24) * 2.0**-63, 2.0**-63]),
        (exp, [1, 1, 1, 1, np.inf, 0.0, 0.36787945, np.inf, np.inf]),
    ],
)
def test_special_values(function, expected):
    values = [0.0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, -1, np.nextafter(np.float32(2.0**126), 2e38), 2.0**126]
    assert _bits(function(values)) == _bits(expected)
    assert _bits(function([np.nan, -np.nan])) == 2 * [QUIET_NAN]


@pytest.mark.parametrize("function", [reciprocal, rsqrt, exp])
def test_nothing_that_leaves_is_subnormal_or_another_nan(function):
    drawn = np.random.default_rng(new_seed()).integers(0, 1 << 32, 100_000, dtype=np.uint32)
    bits = np.array(_bits(function(np.append(drawn, np.array(SPECIAL, np.uint32)).view(np.float32))))
    exponent, fraction = bits >> 23 & 255, bits & BINADE - 1
    assert not ((exponent == 0) & (fraction > 0)).any()
    assert set(bits[(exponent == 255) & (fraction > 0)].tolist()) == {QUIET_NAN}


@pytest.mark.parametrize(
    ("t", "bits"), [(-87.33655, 0x00800000), (-87.33656, 0), (88.72283, 0x7F7FFF4E), (88.72284, 0x7F800000)]
)
def test_exp_at_the_ends_of_its_range(t, bits):
    assert _bits(exp([t])) == [bits]


def test_the_seeds_have_nine_bits_with_the_upper_one_set():
    for seeds in (RECIPROCAL_SEEDS, RSQRT_SEEDS):
        assert len(seeds) == 128
        assert all(256 <= seed < 512 for seed in seeds)
