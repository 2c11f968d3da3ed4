"""Sums over the non-zero entries of CSR samples for the golden trainers, bit-identical to the dense sums.

Sums are taken in float64. A term is below 2^31, and a sum has fewer than 2^21 terms of a sample or micro-batch.
Each partial sum is therefore an integer below 2^53, exact in any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin import fixed
from fanin.fixed import Int64


def forward(features: sparse.csr_matrix, model: Int64, precision: int, *, share: int) -> Int64:
    """Return the exact PA of every sample over each slice of ``share`` columns: [slice, sample]."""
    samples, columns = features.shape
    slices = -(-columns // share)
    products = fixed.bit_serial(features.data, model[features.indices], precision)
    target = features.indices // share * samples + _samples(features)
    return _sums(target, products, slices * samples).reshape(slices, samples)


def gradient(features: sparse.csr_matrix, scale: Int64, precision: int) -> tuple[npt.NDArray[np.int64], Int64]:
    """Return the columns with entries in these samples, and the exact gradient of each."""
    columns, target = np.unique(features.indices, return_inverse=True)
    products = fixed.bit_serial(features.data, scale[_samples(features)], precision)
    return columns, _sums(target, products, len(columns))


def _samples(features: sparse.csr_matrix) -> npt.NDArray[np.int64]:
    """Return the sample number of every entry."""
    return np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))


def _sums(target: npt.NDArray[np.int64], terms: Int64, count: int) -> Int64:
    return np.bincount(target, weights=terms.astype(np.float64), minlength=count).astype(np.int64)
