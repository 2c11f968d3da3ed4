"""Scaled integers of a switch: errors, limits, values that are none."""

import numpy as np
import pytest

from fanin.golden import scaled
from tests.support import new_seed

LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize("workers", [2, 3, 32])
@pytest.mark.parametrize("scale", [1e-38, 1e-6, 1.0, 1e30])
def test_a_sum_is_within_half_a_unit_of_each_worker(workers, scale):
    rng = np.random.default_rng(new_seed())
    given = (rng.standard_normal((workers, 500)) * scale).astype(np.float32)
    exact = given.astype(np.float64).sum(axis=0)
    largest = max(scaled.largest_exponent(own) for own in given)
    unit = 2.0 ** -scaled.fraction_bits(largest, workers)
    assert unit < 2e-7 * workers * np.abs(given).max()
    error = np.abs(scaled.all_reduce(given) - exact)
    assert (error <= workers * unit / 2 + np.abs(exact) * 2.0**-24 + 2.0**-150).all()


@pytest.mark.parametrize("workers", [2, 5, 32])
def test_no_sum_overflows(workers):
    for value in (LARGEST, -LARGEST, np.nextafter(np.float32(2), 0), np.float32(-1)):
        given = np.full((workers, 3), value)
        with np.errstate(over="ignore"):
            expected = np.float32(workers) * value
        assert scaled.all_reduce(given) == pytest.approx(np.full(3, expected), rel=1e-6)


def test_whole_numbers_of_16_bits_are_exact():
    numbers = np.arange(1 << 16).astype(np.float32)
    given = [np.zeros_like(numbers)] * 31 + [numbers]
    assert np.array_equal(scaled.all_reduce(given), numbers)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_all_of_them_nan(value):
    assert np.isnan(scaled.all_reduce([np.array([1, 2], np.float32), np.array([3, value], np.float32)])).all()


def test_zeros_and_subnormals():
    small = np.array([1e-40, -1e-40, 0, -0.0], np.float32)
    assert np.array_equal(scaled.all_reduce([np.zeros(4, np.float32)] * 2), np.zeros(4))
    assert np.array_equal(scaled.all_reduce([small, small]), 2 * small)


def test_the_largest_exponent_is_that_of_any_worker():
    given = [
        scaled.one_hot(scaled.largest_exponent(np.array([value], np.float32))) for value in (0.0, 3.0, 1.0)
    ]
    assert scaled.common_exponent(np.sum(given, axis=0, dtype=np.int32)) == 127 + 1
