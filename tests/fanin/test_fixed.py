"""Every rounding of docs/reference/numbers.md, against exact rationals and against floating point."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from math import ceil, floor, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from fanin import fixed
from fanin.base.errors import InputError
from fanin.fixed import INT32_MAX, INT32_MIN, Loss

int32 = st.integers(INT32_MIN, INT32_MAX)
fracs = st.integers(fixed.MIN_FRAC, fixed.MAX_FRAC)
ALL_FRACS = range(fixed.MIN_FRAC, fixed.MAX_FRAC + 1)


@pytest.mark.parametrize(
    ("workers", "c"), [(1, 31), (2, 30), (3, 29), (4, 29), (5, 28), (8, 28), (9, 27), (17, 26), (32, 26)]
)
def test_clamp_bits_is_31_minus_ceil_log2(workers, c):
    assert fixed.clamp_bits(workers) == c


@pytest.mark.parametrize("workers", range(1, 33))
def test_clamped_values_of_all_workers_never_overflow_and_the_range_is_the_widest(workers):
    c = fixed.clamp_bits(workers)
    low, high = fixed.clamp([-(2**62), 2**62], c).tolist()
    assert workers * low >= INT32_MIN
    assert workers * high <= INT32_MAX
    assert workers * 2 * low < INT32_MIN


def test_clamp_leaves_what_is_inside_and_moves_the_rest_to_the_bounds():
    values = [-(2**40), -17, -16, -15, 0, 14, 15, 16, 2**40]
    assert fixed.clamp(values, 4).tolist() == [-16, -16, -16, -15, 0, 14, 15, 15, 15]
    assert fixed.saturate32([INT32_MIN - 1, INT32_MIN, INT32_MAX, INT32_MAX + 1]).tolist() == [
        INT32_MIN,
        INT32_MIN,
        INT32_MAX,
        INT32_MAX,
    ]


@given(st.integers(1, 8), st.data(), int32)
def test_bit_serial_rounds_every_plane_down_on_its_own(precision, data, x):
    q = data.draw(st.integers(0, 2**precision - 1))
    bits = f"{q:0{precision}b}"
    want = sum(floor(Fraction(x, 2**j)) for j, bit in enumerate(bits, start=1) if bit == "1")
    assert fixed.bit_serial(q, x, precision) == want
    assert abs(want - Fraction(q, 2**precision) * x) < precision


@given(st.floats(fixed.MIN_RATE, fixed.MAX_RATE, exclude_max=True))
def test_learning_rate_is_the_nearest_with_a_normalised_mantissa(value):
    mantissa, shift = fixed.learning_rate(value)
    assert 2**15 <= mantissa < 2**16
    assert 0 <= shift <= fixed.MAX_SHIFT
    exact = Fraction(value)
    error = abs(Fraction(mantissa, 2**shift) - exact)
    assert error <= Fraction(1, 2 ** (shift + 1))


def test_learning_rate_rounds_half_to_even():
    assert fixed.learning_rate((2**15 + 0.5) / 2**15) == (2**15, 15)
    assert fixed.learning_rate((2**15 + 1.5) / 2**15) == (2**15 + 2, 15)


def test_learning_rate_that_rounds_up_to_2_to_16_takes_one_less_shift():
    assert fixed.learning_rate(np.nextafter(1.0, 0)) == (2**15, 15)
    assert fixed.learning_rate(np.nextafter(2.0**15, 0)) == (2**15, 0)
    assert fixed.learning_rate(2.0**-24) == (2**15, 39)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nextafter(2.0**-24, 0), 2.0**15, float("inf"), float("nan")])
def test_learning_rate_outside_the_range_says_the_range(value):
    with pytest.raises(InputError, match=r"must be in \[2\^-24, 2\^15\)"):
        fixed.learning_rate(value)


decays = st.integers(1, fixed.MAX_DECAY)


@given(int32 | st.sampled_from([INT32_MIN, -1, 0, 1, INT32_MAX]), decays)
def test_a_weight_decays_by_its_share_rounded_away_from_zero(x, shift):
    lost = int(fixed.decay(x, shift))
    assert abs(lost) == ceil(Fraction(abs(x), 2**shift))
    assert lost == -int(fixed.decay(-x, shift))
    assert abs(x - lost) <= (1 - Fraction(1, 2**shift)) * abs(x)  # a contraction
    assert (x - lost) * x >= 0  # no overshoot, hence no oscillation
    assert (x - lost == x) == (x == 0)  # it rests in 0 alone


@pytest.mark.parametrize("x", [INT32_MIN, -1, 1, INT32_MAX])
@pytest.mark.parametrize("shift", [1, 4, 8])
def test_a_weight_without_a_gradient_ends_in_zero(x, shift):
    steps, most = 0, 2**shift * (max(0, log(abs(x) / 2**shift)) + 1) + 1
    while x:
        x -= int(fixed.decay(x, shift))
        steps += 1
    assert steps <= most


def test_shift_0_is_no_decay():
    assert fixed.decay([INT32_MIN, -1, 0, 1, INT32_MAX], 0).tolist() == [0] * 5


@given(decays, st.floats(2.0**-20, 2.0**20), st.floats(0.71, 1.41))
def test_the_decay_of_a_lambda_is_the_nearest_by_ratio(shift, gamma, off):
    exact = fixed.l2_of(shift, gamma)
    assert exact * gamma == pytest.approx(2.0**-shift, rel=1e-12)
    assert fixed.decay_of(exact * off, gamma, spared=3) == (shift, 3)


def test_lambda_0_is_no_decay_of_any_column():
    assert fixed.decay_of(0.0, 8.0, spared=3) == fixed.NO_DECAY == (0, None)
    assert fixed.l2_of(0, 8.0) == 0


@pytest.mark.parametrize("l2", [1e-9, 0.1, 1e300])
def test_a_lambda_out_of_reach_says_which_are_within(l2):
    with pytest.raises(InputError, match=r"l2 must be 0 or from 7.45e-09 to 0.0625 at learning rate 8, not"):
        fixed.decay_of(l2, 8.0)


@pytest.mark.parametrize("l2", [-1.0, float("nan"), float("inf")])
def test_a_lambda_that_is_none_is_refused(l2):
    with pytest.raises(InputError, match="l2 must be at least 0 and finite, not"):
        fixed.decay_of(l2, 8.0)


@given(st.integers(-(2**32), 2**32 - 1), st.integers(2**15, 2**16 - 1), st.integers(0, fixed.MAX_SHIFT))
def test_scale_is_the_floor_saturated(df, mantissa, shift):
    want = min(max(floor(Fraction(df * mantissa, 2**shift)), INT32_MIN), INT32_MAX)
    assert fixed.scale(df, mantissa, shift) == want


def test_sigma_table_is_correctly_rounded_at_every_frac():
    with localcontext() as context:
        context.prec = 40
        exact = [1 / (1 + (-(Decimal(i) / 64 - 8)).exp()) for i in range(fixed.SIGMA_ENTRIES + 1)]
        for frac in ALL_FRACS:
            want = [int((v * 2**frac).to_integral_value(ROUND_HALF_EVEN)) for v in exact]
            assert fixed.sigma_table(frac).tolist() == want


def test_no_sigma_entry_is_so_near_a_tie_that_another_exp_would_round_it_otherwise():
    points = np.arange(fixed.SIGMA_ENTRIES + 1) / 64 - 8
    for frac in ALL_FRACS:
        scaled = expit(points) * 2.0**frac
        assert np.abs(scaled - np.floor(scaled) - 0.5).min() > 1e-6


def test_sigma_table_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        fixed.sigma_table(24)[0] = 1


def sigmoid_by_hand(fa, frac):
    if fa < -8 * 2**frac:
        return 0
    if fa >= 8 * 2**frac:
        return 2**frac
    table, n = fixed.sigma_table(frac), min(16, frac - 6)
    i, rest = divmod(fa + 8 * 2**frac, 2 ** (frac - 6))
    r = rest // 2 ** (frac - 6 - n)
    left, right = int(table[i]), int(table[i + 1])
    return left + (right - left) * r // 2**n


@given(st.data(), fracs)
def test_sigmoid_interpolates_as_stated(data, frac):
    near = 9 * 2**frac
    fa = data.draw(st.one_of(int32, st.integers(max(-near, INT32_MIN), min(near, INT32_MAX))))
    assert fixed.sigmoid(fa, frac) == sigmoid_by_hand(fa, frac)


@pytest.mark.parametrize("frac", [6, 8, 16, 22, 23, 24, 28])
def test_sigmoid_is_monotonic_and_near_the_true_one(frac):
    edge = min(9 * 2**frac, INT32_MAX)
    fa = np.linspace(-edge, edge, 20_001).astype(np.int64)
    got = fixed.sigmoid(fa, frac)
    assert (np.diff(got) >= 0).all()
    error = np.abs(got / 2**frac - expit(fa / 2**frac))
    inside = np.abs(fa) < 8 * 2**frac
    # Chord of a 1/64 step: at most step²/8 · max|σ''| = 3e-6; two roundings; outside, σ(−8) = 3.4e-4.
    assert error[inside].max() < 3e-6 + 2 / 2**frac
    assert error.max() < 3.4e-4 + 2 / 2**frac


@pytest.mark.parametrize("frac", [6, 24, 27])
def test_sigmoid_at_the_edges_of_its_range(frac):
    one, low = 1 << frac, -8 << frac
    assert fixed.sigmoid([low - 1, INT32_MIN], frac).tolist() == [0, 0]
    assert fixed.sigmoid(low, frac) == fixed.sigma_table(frac)[0]
    assert fixed.sigmoid(0, frac) == one // 2
    assert fixed.sigmoid([-low, INT32_MAX], frac).tolist() == [one, one]


def test_sigmoid_at_the_largest_frac_covers_all_of_int32():
    assert fixed.sigmoid(INT32_MIN, 28) == fixed.sigma_table(28)[0]
    assert fixed.sigmoid(INT32_MAX, 28) <= fixed.sigma_table(28)[-1]


@pytest.mark.parametrize("frac", [5, 29])
def test_frac_outside_its_limits_is_refused(frac):
    with pytest.raises(ValueError, match=f"frac must be in 6…28, not {frac}"):
        fixed.sigma_table(frac)


@given(int32, int32)
def test_linear_df_is_exact_in_33_bits(fa, y):
    assert fixed.df(fa, y, Loss.LINEAR, 24) == fa - y
    assert -(2**32) <= fa - y < 2**32


@given(int32, fracs, st.booleans())
def test_logistic_df_is_sigma_minus_the_label(fa, frac, positive):
    y = (1 << frac) * positive
    assert fixed.df(fa, y, Loss.LOGISTIC, frac) == sigmoid_by_hand(fa, frac) - y


@given(int32, fracs, st.sampled_from([-1, 1]))
def test_hinge_df_is_minus_y_inside_the_margin(fa, frac, sign):
    inside = sign * Fraction(fa, 2**frac) < 1
    assert fixed.df(fa, sign << frac, Loss.HINGE, frac) == (-sign << frac if inside else 0)


def test_hinge_margin_is_strict():
    one = 1 << 24
    assert fixed.df([one - 1, one], [one, one], Loss.HINGE, 24).tolist() == [-one, 0]
    assert fixed.df([1 - one, -one, INT32_MIN], [-one] * 3, Loss.HINGE, 24).tolist() == [one, 0, 0]


def test_df_takes_the_loss_as_a_plain_register_value():
    assert fixed.df(5, 3, 0, 24) == 2


def test_labels_of_each_loss():
    one = 1 << 24
    assert fixed.labels([0, 1], Loss.LOGISTIC, 24).tolist() == [0, one]
    assert fixed.labels([0, 1], Loss.HINGE, 24).tolist() == [-one, one]
    ties = np.array([0.5, 1.5, -0.5, -2.5]) / 64
    assert fixed.labels(ties, Loss.LINEAR, 6).tolist() == [0, 2, 0, -2]


def test_a_target_that_does_not_fit_says_what_does():
    assert fixed.labels([-128, 127.5], Loss.LINEAR, 24).tolist() == [INT32_MIN, 2139095040]
    with pytest.raises(InputError, match=r"label 128 does not fit 32 bits with 24 .* in \[-128, 128\)"):
        fixed.labels([1.0, 128.0], Loss.LINEAR, 24)
