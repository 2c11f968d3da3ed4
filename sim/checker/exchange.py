"""States between the processes of a search: rows of numbers that each process understands as its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.group import Group
from fanin.sim.checker.tables import Growing, Interned

Batch = tuple[NDArray[Any], ...]  # rows, and arrays beside them


class RowExchange:
    """Exchanges rows whose numbers mean ``columns``.

    Each process numbers values as it meets them. So it sends its new values, in order, with the next rows, and
    numbers that come are looked up in what their sender's mean here.
    """

    def __init__(self, group: Group, columns: Sequence[Interned]):
        self._group = group
        self._tables = list({id(table): table for table in columns}.values())
        self._table_of = [next(n for n, t in enumerate(self._tables) if t is table) for table in columns]
        self._told = [0] * len(self._tables)
        self._meanings = [[Growing(np.int32) for _ in self._tables] for _ in range(group.size)]

    def owners(self, marks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Whose states these are, by fingerprint: of its low bits a hash table is made, so by the high ones."""
        return (marks >> np.uint64(40)) % np.uint64(self._group.size)

    def exchange(self, batches: Sequence[Batch]) -> list[Batch]:
        """Send ``batches[r]`` to rank r, and get one of each rank."""
        if self._group.size == 1:
            return list(batches)
        new = [table.values[told:] for table, told in zip(self._tables, self._told, strict=True)]
        self._told = [len(table.values) for table in self._tables]
        received = self._group.exchange([(new, batch) for batch in batches])
        return [self._understood(rank, *message) for rank, message in enumerate(received)]

    def _understood(self, rank: int, new: list[list[Any]], batch: Batch) -> Batch:
        if rank == self._group.rank:
            return batch
        for table, meanings, values in zip(self._tables, self._meanings[rank], new, strict=True):
            meanings.extend(np.array([table(value) for value in values], np.int32))
        rows, *others = batch
        for column, table_number in enumerate(self._table_of):
            rows[:, column] = self._meanings[rank][table_number].array[rows[:, column]]
        return rows, *others
