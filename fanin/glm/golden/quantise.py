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

from fanin.glm.golden.csr import CsrBuilder, column_counts, row_parts

Float64 = npt.NDArray[np.float64]
Quantised = npt.NDArray[np.uint8]
Features: TypeAlias = Float64 | sparse.csr_matrix
Samples: TypeAlias = Quantised | sparse.csr_matrix  # quantised, dense or CSR
Rows: TypeAlias = npt.NDArray[np.int64]  # numbers of samples

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
    def of(cls, features: Features, rows: Rows | None = None) -> ColumnRanges:
        """Return the ranges of some samples, at least one; absent CSR entries are 0.

        ``features``: dense or CSR. ``rows``: numbers of the samples; None: all.
        """
        if sparse.issparse(features):
            return cls._of_csr(features, rows)
        chosen = features if rows is None else features[rows]
        low, high = chosen.min(axis=0), chosen.max(axis=0)
        return cls(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))

    @classmethod
    def _of_csr(cls, features: sparse.csr_matrix, rows: Rows | None) -> ColumnRanges:
        columns = features.shape[1]
        low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
        entries = np.zeros(columns, dtype=np.int64)
        for part in map(canonical, row_parts(features, rows)):
            np.minimum.at(low, part.indices, part.data)
            np.maximum.at(high, part.indices, part.data)
            entries += column_counts(part)
        has_zero = entries < (features.shape[0] if rows is None else len(rows))
        low[has_zero] = np.minimum(low[has_zero], 0)
        high[has_zero] = np.maximum(high[has_zero], 0)
        return cls(low, high)


def quantise(
    features: Features, ranges: ColumnRanges, precision: int, *, bias: bool, rows: Rows | None = None
) -> Samples:
    """Quantise samples by ``ranges``; values outside them are clipped to 0 or 2^s − 1.

    Returns codes, uint8 (samples, columns + bias). CSR features give CSR codes if these are smaller than an
    array, and are never made dense in float64. ``rows``: numbers of the samples, in order; None: all.

    Memory holds features, result, and a part of the samples in float64.
    """
    if not sparse.issparse(features):
        return _quantise_dense(features, ranges, precision, bias, rows)
    features = canonical(features)
    at_zero = _fractions(np.zeros_like(ranges.low), ranges.low, ranges.high, precision)
    samples = features.shape[0] if rows is None else len(rows)
    columns = features.shape[1] + bias
    filled = np.flatnonzero(at_zero)
    entries = _entries(features, rows) + samples * bias
    if len(filled):
        entries += sum(_absent(part, filled) for part in row_parts(features, rows))
    if entries * CSR_BYTES >= samples * columns:
        codes = np.empty((samples, columns), dtype=np.uint8)
        start = 0
        for part in row_parts(features, rows):
            _quantise_sparse(part, ranges, precision, codes[start : start + part.shape[0]], at_zero, bias)
            start += part.shape[0]
        return codes
    result = CsrBuilder(np.uint8)
    for part in row_parts(features, rows, added=len(filled)):
        coded = _with_codes(part, ranges, precision)
        if len(filled):
            coded = _filled(coded, at_zero)
        result.append(_with_bias(coded, (1 << precision) - 1 if bias else None))
    return result.finish(columns)


def _quantise_dense(
    features: Float64, ranges: ColumnRanges, precision: int, bias: bool, rows: Rows | None
) -> Quantised:
    """Quantise dense samples, some at a time."""
    samples, columns = (features.shape[0] if rows is None else len(rows)), features.shape[1]
    codes = np.empty((samples, columns + bias), dtype=np.uint8)
    if bias:
        codes[:, -1] = (1 << precision) - 1
    for start in range(0, samples, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        chosen = features[part if rows is None else rows[part]]
        codes[part, :columns] = _fractions(chosen, ranges.low, ranges.high, precision)
    return codes


def _entries(features: sparse.csr_matrix, rows: Rows | None) -> int:
    """Return the number of entries of some samples, or of all."""
    if rows is None:
        return int(features.nnz)
    return int(np.sum(features.indptr[rows + 1] - features.indptr[rows], dtype=np.int64))


def _absent(features: sparse.csr_matrix, columns: npt.NDArray[np.int64]) -> int:
    """Return the number of places in these columns without an entry."""
    return features.shape[0] * len(columns) - int(np.isin(features.indices, columns).sum())


def _with_codes(features: sparse.csr_matrix, ranges: ColumnRanges, precision: int) -> sparse.csr_matrix:
    """Return the codes of the entries of CSR features, at the places of the entries."""
    columns = features.indices
    codes = _fractions(features.data, ranges.low[columns], ranges.high[columns], precision)
    return sparse.csr_matrix((codes, columns, features.indptr), shape=features.shape)


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
    _check_zeros(ranges)
    rows = _with_codes(canonical(features), ranges, precision)
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


def _quantise_sparse(
    part: sparse.csr_matrix,
    ranges: ColumnRanges,
    precision: int,
    codes: Quantised,
    at_zero: Quantised,
    bias: bool,
) -> None:
    """Write the codes of canonical CSR samples, and the bias, into rows of an array."""
    codes[:, : len(at_zero)] = at_zero
    if bias:
        codes[:, -1] = (1 << precision) - 1
    coded = _with_codes(part, ranges, precision)
    codes[np.repeat(np.arange(part.shape[0]), np.diff(part.indptr)), part.indices] = coded.data


def _fractions(x: Float64, low: Float64, high: Float64, precision: int) -> Quantised:
    span = high - low
    constant = span == 0
    with np.errstate(over="ignore"):  # a test value far outside the range
        scaled = np.floor((x - low) / np.where(constant, 1.0, span) * (1 << precision))
    return np.where(constant, 0, np.clip(scaled, 0, (1 << precision) - 1)).astype(np.uint8)
