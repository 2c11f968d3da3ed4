"""The golden trainers' sums over CSR samples, of entries that are not 0 alone; the bits of the dense sums.

Sums are taken in float64: a term is below 2^31 and a sample or a micro-batch has fewer than 2^21 of them for a
sum, so that each partial sum is an integer below 2^53, exact in any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin import fixed
from fanin.fixed import Int64


def forward(features: sparse.csr_matrix, model: Int64, precision: int, *, share: int) -> Int64:
    """The exact PA of every sample over every ``share`` columns: [slice, sample]."""
    samples, columns = features.shape
    slices = -(-columns // share)
    products = fixed.bit_serial(features.data, model[features.indices], precision)
    place = features.indices // share * samples + _samples(features)
    return _sums(place, products, slices * samples).reshape(slices, samples)


def gradient(features: sparse.csr_matrix, scale: Int64, precision: int) -> tuple[npt.NDArray[np.int64], Int64]:
    """Columns that the samples have entries in, and the exact gradient of each."""
    columns, place = np.unique(features.indices, return_inverse=True)
    products = fixed.bit_serial(features.data, scale[_samples(features)], precision)
    return columns, _sums(place, products, len(columns))


def _samples(features: sparse.csr_matrix) -> npt.NDArray[np.int64]:
    """The sample of every entry."""
    return np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))


def _sums(place: npt.NDArray[np.int64], terms: Int64, count: int) -> Int64:
    return np.bincount(place, weights=terms.astype(np.float64), minlength=count).astype(np.int64)
