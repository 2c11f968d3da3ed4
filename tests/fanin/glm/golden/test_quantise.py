"""The quantiser against exact rationals, dense and sparse."""

import tracemalloc
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fanin.glm.golden import csr
from fanin.glm.golden.quantise import (
    ROWS_AT_ONCE,
    ColumnRanges,
    column_blocks,
    fractions,
    quantise,
    quantise_sparse,
)
from tests.support import new_seed


def quantise_own(features, precision, bias=False):
    return quantise(features, ColumnRanges.of(features), precision, bias=bias)


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=12), st.integers(1, 8))
def test_fractions_are_floored_and_the_maximum_is_the_largest_code(column, precision):
    got = quantise_own(np.array(column, dtype=float)[:, np.newaxis], precision)[:, 0].tolist()
    low, span, codes = min(column), max(column) - min(column), 2**precision
    # float64 in the stated order: the quotient is rounded before it is multiplied by a power of two
    want = [min(floor(Fraction((x - low) / span) * codes), codes - 1) if span else 0 for x in column]
    assert got == want


def test_a_worked_column():
    assert quantise_own(np.array([[2.0], [3.0], [4.0], [5.0], [6.0]]), 2)[:, 0].tolist() == [0, 1, 2, 3, 3]


def test_a_constant_column_is_0_and_the_bias_is_last_and_largest():
    got = quantise_own(np.array([[7.0, 0.0], [7.0, 1.0]]), 3, bias=True)
    assert got.tolist() == [[0, 0, 7], [0, 7, 7]]
    assert got.dtype == np.uint8


def test_values_outside_the_training_range_go_to_its_ends():
    ranges = ColumnRanges(np.array([0.0, 5.0]), np.array([1.0, 5.0]))
    outside = np.array([[-3.0, 9.0], [2.0, -9.0], [1e308, 0.0], [-1e308, 0.0]])
    assert quantise(outside, ranges, 4, bias=False).tolist() == [[0, 0], [15, 0], [15, 0], [0, 0]]


@pytest.mark.parametrize("precision", [1, 4, 8])
def test_sparse_features_quantise_as_dense_ones(precision):
    rng = np.random.default_rng(new_seed())
    dense = rng.normal(size=(2 * ROWS_AT_ONCE + 3, 9)) * (rng.random((2 * ROWS_AT_ONCE + 3, 9)) < 0.3)
    dense[:, 3] = 0  # nothing stored
    dense[:, 4] = np.abs(dense[:, 4]) + 1  # nothing absent
    dense[:, 5] = -np.abs(dense[:, 5])  # an absent entry is the maximum
    rows = sparse.csr_matrix(dense)
    assert np.array_equal(quantise_own(rows, precision, bias=True), quantise_own(dense, precision, bias=True))


def test_blocks_cover_every_column_once():
    for columns in (0, 1, 4096, 4097, 9000):
        covered = [k for block in column_blocks(columns) for k in range(columns)[block]]
        assert covered == list(range(columns))


@pytest.mark.parametrize("precision", [1, 4, 8])
def test_sparse_samples_stay_sparse_and_have_the_dense_codes(precision):
    rng = np.random.default_rng(new_seed())
    features = rng.random((60, 13)) * (rng.random((60, 13)) < 0.2)
    features[:, 3] = 0.0  # constant, without an entry
    features[:, 4] = 2.5  # constant, with one everywhere
    rows = sparse.csr_matrix(features)
    ranges = ColumnRanges.of(rows)
    got = quantise_sparse(rows, ranges, precision, bias=True)
    assert got.dtype == np.uint8
    assert (got.data > 0).all()
    assert np.array_equal(got.toarray(), quantise(features, ranges, precision, bias=True))
    exact = fractions(rows, ranges, bias=True).toarray()
    assert exact.max() == 1.0
    assert np.array_equal(np.minimum(np.floor(exact * 2**precision), 2**precision - 1), got.toarray())


def test_zeros_that_would_not_stay_zeros_are_refused():
    rows = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, -2.0]]))
    with pytest.raises(ValueError, match="column 2 has values below 0, -2, so its zeros do not stay 0"):
        quantise_sparse(rows, ColumnRanges.of(rows), 4, bias=False)


def legal_forms(dense, rng):
    """CSR matrices that equal ``dense``: shuffled, with duplicates, with explicit zeros, with wide indices."""
    rows, columns = np.nonzero(np.ones_like(dense))
    values = dense[rows, columns]  # zeros are stored, too
    order = rng.permutation(len(values))
    shuffled = sparse.csr_matrix(sparse.coo_matrix((values[order], (rows[order], columns[order])), dense.shape))
    halves = np.repeat(values / 2, 2)
    starts = np.arange(len(dense) + 1) * 2 * dense.shape[1]
    yield shuffled
    yield sparse.csr_matrix((halves, np.repeat(columns, 2), starts), dense.shape)
    reverse = np.concatenate([row[::-1] for row in np.repeat(columns, 2).reshape(len(dense), -1)])
    backwards = np.concatenate([row[::-1] for row in halves.reshape(len(dense), -1)])
    wide = sparse.csr_matrix(dense.shape)
    wide.data, wide.indices, wide.indptr = backwards, reverse.astype(np.int64), starts.astype(np.int64)
    yield wide


def test_every_legal_form_of_a_sparse_matrix_equals_the_dense_one():
    rng = np.random.default_rng(new_seed())
    dense = np.maximum(rng.integers(-3, 5, (40, 7)), 0) / 4.0
    ranges = ColumnRanges.of(dense)
    expected = quantise(dense, ranges, 4, bias=True)
    for form in legal_forms(dense, rng):
        stored = form.nnz
        assert (form.toarray() == dense).all()
        own = ColumnRanges.of(form)
        assert (own.low == ranges.low).all()
        assert (own.high == ranges.high).all()
        assert (quantise(form, ranges, 4, bias=True) == expected).all()
        assert (quantise_sparse(form, ranges, 4, bias=True).toarray() == expected).all()
        exact = np.where(ranges.high > 0, dense / np.where(ranges.high > 0, ranges.high, 1), 0)
        assert np.allclose(fractions(form, ranges, bias=False).toarray(), exact)
        assert form.nnz == stored  # the caller's matrix is as it was


@pytest.mark.parametrize("bias", [False, True])
def test_csr_samples_of_few_values_give_csr_codes_also_below_0(bias):
    rng = np.random.default_rng(new_seed())
    samples = ROWS_AT_ONCE + 60
    dense = rng.random((samples, 60)) * (rng.random((samples, 60)) < 0.02)
    dense[:, 7] *= -1  # zeros are the maximum
    dense[:5, 9] = [-1, 2, 0, -3, 1]  # zeros are in between
    dense[:, 11] = 0
    rows = sparse.csr_matrix(dense)
    ranges = ColumnRanges.of(dense)
    got = quantise(rows, ranges, 4, bias=bias)
    assert sparse.issparse(got)
    assert (got.data > 0).all()
    assert got.has_sorted_indices
    assert np.array_equal(got.toarray(), quantise(dense, ranges, 4, bias=bias))


@pytest.mark.parametrize("density", [0.02, 0.5])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_chosen_rows_are_those_of_a_copy(monkeypatch, form, density):
    """Parts of a few rows, in an order with repetitions; also columns whose zeros are not code 0."""
    monkeypatch.setattr(csr, "ENTRIES_AT_ONCE", 16)
    rng = np.random.default_rng(new_seed())
    dense = rng.normal(size=(200, 60)) * (rng.random((200, 60)) < density)
    dense[:, 3:] = np.abs(dense[:, 3:])
    dense[:, 5] = 1 + rng.random(200)  # nothing absent
    rows = rng.integers(0, 200, 150)
    ranges = ColumnRanges.of(form(dense), rows)
    assert np.array_equal(ranges.low, dense[rows].min(axis=0))
    assert np.array_equal(ranges.high, dense[rows].max(axis=0))
    got = quantise(form(dense), ranges, 4, bias=True, rows=rows)
    expected = quantise(dense[rows], ranges, 4, bias=True)
    assert sparse.issparse(got) == (form is sparse.csr_matrix and density < 0.1)
    assert np.array_equal(got.toarray() if sparse.issparse(got) else got, expected)
    nothing = quantise(form(dense), ranges, 4, bias=True, rows=rows[:0])
    assert nothing.shape == (0, 61)


def test_columns_whose_zeros_are_not_code_0_take_no_more_memory_than_a_part_and_the_codes(monkeypatch):
    """5 bytes an entry of the codes; 40 columns get an entry in each sample."""
    monkeypatch.setattr(csr, "ENTRIES_AT_ONCE", 1 << 12)
    rng = np.random.default_rng(new_seed())
    samples, columns, filled = 5_000, 4_000, 40
    rows = sparse.random(samples, columns, density=0.0005, random_state=rng, format="csr")
    low = np.zeros(columns)
    low[:filled] = -1
    ranges = ColumnRanges(low, np.ones(columns))
    tracemalloc.start()
    try:
        codes = quantise(rows, ranges, 4, bias=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert codes.nnz > samples * (filled + 1)
    assert peak < 1.3 * 5 * codes.nnz + 16 * samples + (1 << 20)


def test_csr_samples_of_many_values_give_an_array():
    rng = np.random.default_rng(new_seed())
    dense = rng.random((60, 40)) * (rng.random((60, 40)) < 0.5)
    got = quantise(sparse.csr_matrix(dense), ColumnRanges.of(dense), 4, bias=True)
    assert isinstance(got, np.ndarray)
