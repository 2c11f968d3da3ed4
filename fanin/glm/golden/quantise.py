"""Quantise features to unsigned fractions of ``precision`` bits (docs/reference/numbers.md).

Per column, in float64 and in this order: q = min(floor((x − min) / (max − min) · 2^s), 2^s − 1). A constant
column is 0. The bias is an additional last column with the constant 2^s − 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

Float64 = npt.NDArray[np.float64]
Quantised = npt.NDArray[np.uint8]
Features: TypeAlias = Float64 | sparse.csr_matrix
Samples: TypeAlias = Quantised | sparse.csr_matrix  # quantised, dense or CSR

ROWS_AT_ONCE = 4096  # bounds the float64 temporaries
CSR_BYTES = 5  # of an entry of CSR codes: a code and a column; an array has a byte per place
COLUMNS_AT_ONCE = 4096  # a block's temporaries stay in the cache


def column_blocks(columns: int) -> Iterator[slice]:
    """Yield all columns in blocks of at most 4096.

    Over one block, float64 sums of products below 2^40 are integers below 2^53: exact in any order.
    """
    for start in range(0, columns, COLUMNS_AT_ONCE):
        yield slice(start, start + COLUMNS_AT_ONCE)


def canonical(features: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return CSR features with one entry per place; duplicate entries are summed, as in the dense form.

    Returns ``features`` itself if it already has this form, else a copy.
    """
    if not features.has_canonical_format:
        features = features.copy()
        features.sum_duplicates()
    return features


@dataclass(frozen=True)
class ColumnRanges:
    """Minimum and maximum of every column of the training samples."""

    low: Float64
    high: Float64

    @classmethod
    def of(cls, features: Features) -> ColumnRanges:
        """Return the ranges of dense or CSR features with at least one sample; absent CSR entries are 0."""
        low, high = features.min(axis=0), features.max(axis=0)
        if sparse.issparse(features):
            low, high = low.toarray()[0], high.toarray()[0]
        return cls(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))


def quantise(features: Features, ranges: ColumnRanges, precision: int, *, bias: bool) -> Samples:
    """Quantise all samples by ``ranges``; values outside them are clipped to 0 or 2^s − 1.

    Returns codes, uint8 (samples, columns + bias). CSR features give CSR codes if these are smaller than an
    array, and are never made dense in float64.
    """
    if not sparse.issparse(features):
        return _quantise_rows(features, ranges, precision, bias)
    features = canonical(features)
    at_zero = _fractions(np.zeros_like(ranges.low), ranges.low, ranges.high, precision)
    absent = _absent(features, np.flatnonzero(at_zero))
    samples, columns = features.shape
    entries = features.nnz + samples * bias + absent
    if entries * CSR_BYTES >= samples * (columns + bias):
        return _quantise_rows(features, ranges, precision, bias)
    codes = _fractions(features.data, ranges.low[features.indices], ranges.high[features.indices], precision)
    rows = sparse.csr_matrix((codes, features.indices, features.indptr), shape=features.shape)
    if absent:
        rows = sparse.vstack([_filled(part, at_zero) for part in _row_parts(rows)], format="csr")
    return _with_bias(rows, (1 << precision) - 1 if bias else None)


def _quantise_rows(features: Features, ranges: ColumnRanges, precision: int, bias: bool) -> Quantised:
    """Quantise features, dense or canonical CSR, into an array, some rows at a time."""
    samples, columns = features.shape
    codes = np.empty((samples, columns + bias), dtype=np.uint8)
    if bias:
        codes[:, -1] = (1 << precision) - 1
    for start in range(0, samples, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        if sparse.issparse(features):
            _quantise_sparse(features[rows], ranges, precision, codes[rows, :columns])
        else:
            codes[rows, :columns] = _fractions(features[rows], ranges.low, ranges.high, precision)
    return codes


def _absent(features: sparse.csr_matrix, columns: npt.NDArray[np.int64]) -> int:
    """Return the number of places in these columns without an entry."""
    stored = np.isin(features.indices, columns).sum() if len(columns) else 0
    return features.shape[0] * len(columns) - int(stored)


def _row_parts(features: sparse.csr_matrix) -> Iterator[sparse.csr_matrix]:
    for start in range(0, features.shape[0], ROWS_AT_ONCE):
        yield features[start : start + ROWS_AT_ONCE]


def _filled(codes: sparse.csr_matrix, at_zero: Quantised) -> sparse.csr_matrix:
    """Return CSR codes with an entry at each absent place whose zero has another code, ``at_zero``."""
    columns = np.flatnonzero(at_zero)
    sample = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
    is_stored = np.zeros((codes.shape[0], len(columns)), dtype=bool)
    place = np.minimum(np.searchsorted(columns, codes.indices), len(columns) - 1)
    held = columns[place] == codes.indices
    is_stored[sample[held], place[held]] = True
    new_sample, new_place = np.nonzero(~is_stored)
    added = columns[new_place]
    entries = np.concatenate([codes.data, at_zero[added]])
    places = np.concatenate([sample, new_sample]), np.concatenate([codes.indices, added])
    return sparse.csr_matrix((entries, places), shape=codes.shape)


def quantise_sparse(
    features: sparse.csr_matrix, ranges: ColumnRanges, precision: int, *, bias: bool
) -> sparse.csr_matrix:
    """Quantise CSR features to the values of :func:`quantise`, as CSR.

    Raises ValueError if a column has values below 0: its zeros would not stay 0.
    """
    features = canonical(features)
    columns = features.indices
    codes = _fractions(features.data, ranges.low[columns], ranges.high[columns], precision)
    _check_zeros(ranges)
    rows = sparse.csr_matrix((codes, features.indices, features.indptr), shape=features.shape)
    return _with_bias(rows, (1 << precision) - 1 if bias else None)


def fractions(features: sparse.csr_matrix, ranges: ColumnRanges, *, bias: bool) -> sparse.csr_matrix:
    """Scale CSR features to [0, 1] like :func:`quantise_sparse`, without rounding; the bias is 1."""
    features = canonical(features)
    columns = features.indices
    span = ranges.high - ranges.low
    scaled = (features.data - ranges.low[columns]) / np.where(span == 0, np.inf, span)[columns]
    _check_zeros(ranges)
    rows = sparse.csr_matrix((scaled, features.indices, features.indptr), shape=features.shape)
    return _with_bias(rows, 1.0 if bias else None)


def _check_zeros(ranges: ColumnRanges) -> None:
    """Raise ValueError if a zero of some column is not quantised to 0."""
    if (ranges.low < 0).any():
        k = int(np.argmax(ranges.low < 0))
        raise ValueError(f"column {k + 1} has values below 0, {ranges.low[k]:g}, so its zeros do not stay 0")


def _with_bias(rows: sparse.csr_matrix, bias: float | None) -> sparse.csr_matrix:
    """Return CSR rows without explicit zeros, and with a constant last column unless ``bias`` is None."""
    if bias is None:
        rows = rows.copy()  # do not change the caller's indices
    else:
        constant = np.full((rows.shape[0], 1), bias, dtype=rows.dtype)
        rows = sparse.hstack([rows, sparse.csr_matrix(constant)], format="csr")
    rows.eliminate_zeros()
    return rows


def _quantise_sparse(rows: sparse.csr_matrix, ranges: ColumnRanges, precision: int, codes: Quantised) -> None:
    codes[:] = _fractions(np.zeros_like(ranges.low), ranges.low, ranges.high, precision)
    sample = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    column = rows.indices
    codes[sample, column] = _fractions(rows.data, ranges.low[column], ranges.high[column], precision)


def _fractions(x: Float64, low: Float64, high: Float64, precision: int) -> Quantised:
    span = high - low
    constant = span == 0
    with np.errstate(over="ignore"):  # a test value far outside the range
        scaled = np.floor((x - low) / np.where(constant, 1.0, span) * (1 << precision))
    return np.where(constant, 0, np.clip(scaled, 0, (1 << precision) - 1)).astype(np.uint8)
