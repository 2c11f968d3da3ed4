"""Exchange of states between the processes of a search, translated to each process's value numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import Packing, Words
from fanin.sim.checker.tables import Growing, Interned, Rows, fingerprints

Batch = tuple[NDArray[Any], ...]  # rows, then arrays with one entry per row
Places = Sequence[NDArray[np.intp]]  # per rank, the indices of the rows that were sent to it


class RowExchange:
    """Exchange of rows between the processes of a group; all processes make the same calls in the same order.

    ``columns`` are the value tables of a row's columns. Each process numbers values as it meets them. A process
    therefore sends its new values with the next rows, and the receiver translates the sender's numbers to its
    own. Rows are sent packed.
    """

    def __init__(self, group: Group, columns: Sequence[Interned]):
        self._group, self._columns = group, columns
        self._tables = list({id(table): table for table in columns}.values())
        self._table_of = [next(n for n, t in enumerate(self._tables) if t is table) for table in columns]
        self._told = [0] * len(self._tables)
        self._meanings = [[Growing(np.int32) for _ in self._tables] for _ in range(group.size)]

    def to_owners(self, rows: Rows, *beside: NDArray[Any]) -> tuple[Places, list[Batch]]:
        """Send rows, with arrays ``beside`` them, to their owners; return the places sent and the batches."""
        if self._group.size == 1:
            return [np.arange(len(rows))], [(rows, *beside)]
        owners = self.owners(rows)
        places = [np.flatnonzero(owners == rank) for rank in range(self._group.size)]
        return places, self._exchange(
            [tuple(each.take(at, axis=0) for each in (rows, *beside)) for at in places]
        )

    def answered(self, places: Places, answers: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Send back an answer for each received row; return the owners' answers for the rows that were sent."""
        if self._group.size == 1:
            return answers[0]
        received = np.concatenate(self._group.exchange(answers))
        found = np.empty_like(received)
        found[np.concatenate(places)] = received
        return found

    def owners(self, rows: Rows) -> NDArray[np.uint64]:
        """Return the rank that owns each state."""
        return (fingerprints(self._columns, rows) >> np.uint64(40)) % np.uint64(self._group.size)

    def from_one(self, rows: Rows) -> Rows:
        """Return, in all processes, the rows of the one process that has any."""
        if self._group.size == 1:
            return rows
        return np.concatenate([batch[0] for batch in self._exchange([(rows,)] * self._group.size)])

    def _exchange(self, batches: Sequence[Batch]) -> list[Batch]:
        new = [table.values[told:] for table, told in zip(self._tables, self._told, strict=True)]
        self._told = [len(table.values) for table in self._tables]
        packing = Packing.for_values(self._columns)
        messages: list[Any] = [
            batch if rank == self._group.rank else (new, packing.bits, packing.pack(batch[0]), batch[1:])
            for rank, batch in enumerate(batches)
        ]
        return [
            message if rank == self._group.rank else self._understood(rank, *message)
            for rank, message in enumerate(self._group.exchange(messages))
        ]

    def _understood(
        self, rank: int, new: list[list[Any]], bits: Sequence[int], words: Words, beside: Sequence[NDArray[Any]]
    ) -> Batch:
        for table, meanings, values in zip(self._tables, self._meanings[rank], new, strict=True):
            meanings.extend(np.array([table(value) for value in values], np.int32))
        rows = Packing(bits).unpack(words)
        for column, table_number in enumerate(self._table_of):
            rows[:, column] = self._meanings[rank][table_number].array.take(rows[:, column])
        return rows, *beside
