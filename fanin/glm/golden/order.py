"""Order of columns on sparse nodes: which worker, engine, chunk and lane holds each column of the data.

The *layout space* has W·E·C·lanes columns: C chunks for each of E engines of each of W workers. Column
((worker·E + engine)·C + chunk)·lanes + lane is that lane's column. A ``TrainShape`` with so many columns gives
each engine exactly C chunks, so ``fanin.glm.golden.layout`` and the trainers work in this space unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.glm.golden.csr import ENTRIES_AT_ONCE

Scalar = TypeVar("Scalar", bound=np.generic)
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ColumnOrder:
    """Places of the data's columns in layout space; made by ``frequency_order`` or ``data_order``."""

    places: Int64  #: int64[columns]: place in layout space of each column of the data
    padded: int  #: columns of the layout space, including padding

    @property
    def columns(self) -> int:
        """Columns of the data, including the bias."""
        return len(self.places)

    def permute(self, features: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return CSR samples of the data in layout space, with sorted indices; padding has no entries.

        Raises ValueError if the number of columns differs from the data's.
        """
        if features.shape[1] != self.columns:
            raise ValueError(f"features must have {self.columns:,} columns, not {features.shape[1]:,}")
        indices = np.empty_like(features.indices)
        for start in range(0, len(indices), ENTRIES_AT_ONCE):
            part = slice(start, start + ENTRIES_AT_ONCE)
            indices[part] = self.places[features.indices[part]]
        parts = (features.data.copy(), indices, features.indptr.copy())
        result = sparse.csr_matrix(parts, shape=(features.shape[0], self.padded))
        result.sort_indices()
        return result

    def to_data(self, model: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return a model of the layout space, [padded], in the data's order, [columns]."""
        _check_length("model of the layout space", model, self.padded)
        return model[self.places]

    def to_layout(self, model: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return a model in the data's order, [columns], in layout space, [padded]; padding is 0."""
        _check_length("model of the data", model, self.columns)
        result = np.zeros(self.padded, dtype=model.dtype)
        result[self.places] = model
        return result


def frequency_order(counts: npt.ArrayLike, *, workers: int, engines: int, lanes: int) -> ColumnOrder:
    """Return the order in which the columns with the most non-zeros share chunks.

    ``counts``: number of non-zeros of each column of the data. Columns with equal counts keep their order.
    """
    ranked = np.argsort(-np.asarray(counts, dtype=np.int64), kind="stable")
    return _deal(ranked, workers, engines, lanes)


def data_order(columns: int, *, workers: int, engines: int, lanes: int) -> ColumnOrder:
    """Return the order in which neighbouring columns of the data share chunks."""
    return _deal(np.arange(columns), workers, engines, lanes)


def _deal(ranked: npt.NDArray[Any], workers: int, engines: int, lanes: int) -> ColumnOrder:
    """Deal chunks of ``lanes`` ranked columns to workers first, then engines, so popular chunks are spread."""
    columns = len(ranked)
    if min(columns, workers, engines, lanes) < 1:
        sizes = f"{columns}, {workers}, {engines}, {lanes}"
        raise ValueError(f"columns, workers, engines and lanes must be at least 1, not {sizes}")
    chunks = -(-columns // (workers * engines * lanes))
    chunk, lane = np.divmod(np.arange(columns, dtype=np.int64), lanes)
    engine = chunk % workers * engines + chunk // workers % engines  # numbered over all workers
    places = np.empty(columns, dtype=np.int64)
    places[ranked] = (engine * chunks + chunk // (workers * engines)) * lanes + lane
    return ColumnOrder(places, workers * engines * chunks * lanes)


def _check_length(name: str, model: npt.NDArray[Any], columns: int) -> None:
    if model.shape != (columns,):
        raise ValueError(f"a {name} must have the shape ({columns},), not {model.shape}")
