"""CSR samples part by part: bounded temporaries, and arrays that grow without a second copy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import sparse

ENTRIES_AT_ONCE = 1 << 20  # of a part, on average: 12 MiB of float64 values and their columns
_FIRST_LENGTH = 1 << 10  # places that an array has at first
_SPARE = 16  # a full array grows by this fraction of its length


class GrowingArray:
    """One-dimensional array of unknown length. It grows in place, by ``realloc``."""

    def __init__(self, dtype: npt.DTypeLike):
        self._array = np.empty(_FIRST_LENGTH, dtype=dtype)
        self._length = 0

    def append(self, values: npt.NDArray) -> None:
        """Append values, converted to the array's type."""
        end = self._length + len(values)
        if end > len(self._array):
            self._array.resize(end + end // _SPARE, refcheck=False)
        self._array[self._length : end] = values
        self._length = end

    def finish(self) -> npt.NDArray:
        """Return the array without spare places; ``append`` must not follow."""
        self._array.resize(self._length, refcheck=False)
        return self._array


class CsrBuilder:
    """CSR matrix that is joined from parts of its rows, in order.

    Takes 4 bytes and a value for each entry and 8 bytes for each row, plus a sixteenth. ``dtype``: of values.
    """

    def __init__(self, dtype: npt.DTypeLike):
        self._values, self._columns = GrowingArray(dtype), GrowingArray(np.int32)
        self._ends = GrowingArray(np.int64)
        self._entries = 0

    def append(self, rows: sparse.csr_matrix) -> None:
        """Append the rows of a CSR matrix; columns must be below 2^31."""
        self._values.append(rows.data)
        self._columns.append(rows.indices)
        self._ends.append(rows.indptr[1:] + np.int64(self._entries))
        self._entries += rows.nnz

    def finish(self, columns: int) -> sparse.csr_matrix:
        """Return the matrix with so many columns; ``append`` must not follow."""
        starts = np.concatenate([np.zeros(1, dtype=np.int64), self._ends.finish()])
        parts = self._values.finish(), self._columns.finish(), starts
        return sparse.csr_matrix(parts, shape=(len(starts) - 1, columns))


def row_parts(
    samples: sparse.csr_matrix, rows: npt.NDArray[np.int64] | None = None, *, added: int = 0
) -> Iterator[sparse.csr_matrix]:
    """Yield CSR samples in parts of about ``ENTRIES_AT_ONCE`` entries; at least one part.

    - ``rows``: numbers of the samples, in order; None: all.
    - ``added``: entries that the caller adds to each sample, which count as the sample's.
    """
    count = samples.shape[0] if rows is None else len(rows)
    entries = samples.nnz + added * samples.shape[0]
    step = max(1, ENTRIES_AT_ONCE * samples.shape[0] // max(entries, ENTRIES_AT_ONCE))
    for start in range(0, max(count, 1), step):
        part = slice(start, start + step)
        yield samples[part] if rows is None else samples[rows[part]]


def column_counts(samples: sparse.csr_matrix) -> npt.NDArray[np.int64]:
    """Return the number of entries of each column."""
    counts = np.zeros(samples.shape[1], dtype=np.int64)
    for start in range(0, samples.nnz, ENTRIES_AT_ONCE):
        counts += np.bincount(samples.indices[start : start + ENTRIES_AT_ONCE], minlength=len(counts))
    return counts
