"""Exchange of states between the processes of a search, translated to each process's value numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.group import Group
from fanin.sim.checker.packing import Packing, Words
from fanin.sim.checker.tables import GrowingArray, Interned, Rows, fingerprints

Batch = tuple[NDArray[Any], ...]  # rows, then arrays with one entry per row
Places = Sequence[NDArray[np.intp]]  # per rank, the indices of the rows that were sent to it


class RowExchange:
    """Exchange of states between the processes of a group; all processes make the same calls in the same order.

    A state is a row of numbers; ``columns`` are the value tables of its columns. Each process numbers values in
    the order of their first occurrence. A process therefore sends its new values with the next rows, and the
    receiver translates the sender's numbers to its own. Rows are sent packed.
    """

    def __init__(self, group: Group, columns: Sequence[Interned]):
        self._group, self._columns = group, columns
        self._tables = list({id(table): table for table in columns}.values())
        self._table_of = [next(n for n, t in enumerate(self._tables) if t is table) for table in columns]
        self._sent_counts = [0] * len(self._tables)
        self._translations = [[GrowingArray(np.int32) for _ in self._tables] for _ in range(group.size)]

    def to_owners(self, rows: Rows, *attached: NDArray[Any]) -> tuple[Places, list[Batch]]:
        """Send rows, and the entries of ``attached`` arrays, to the rows' owners.

        Return the places of the rows that were sent, per owner, and the batches received, per sender.
        """
        if self._group.size == 1:
            return [np.arange(len(rows))], [(rows, *attached)]
        owners = self.owners(rows)
        places = [np.flatnonzero(owners == rank) for rank in range(self._group.size)]
        return places, self._exchange(
            [tuple(array.take(indices, axis=0) for array in (rows, *attached)) for indices in places]
        )

    def return_answers(self, places: Places, answers: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Send back an answer for each received row; return the owners' answers for the rows that were sent."""
        if self._group.size == 1:
            return answers[0]
        received = np.concatenate(self._group.exchange(answers))
        ordered = np.empty_like(received)
        ordered[np.concatenate(places)] = received
        return ordered

    def owners(self, rows: Rows) -> NDArray[np.uint64]:
        """Return the rank that owns each state."""
        return (fingerprints(self._columns, rows) >> np.uint64(40)) % np.uint64(self._group.size)

    def broadcast(self, rows: Rows) -> Rows:
        """Send the rows of the single process that has any to all processes; return them in each."""
        if self._group.size == 1:
            return rows
        return np.concatenate([batch[0] for batch in self._exchange([(rows,)] * self._group.size)])

    def _exchange(self, batches: Sequence[Batch]) -> list[Batch]:
        new_values = [table.values[sent:] for table, sent in zip(self._tables, self._sent_counts, strict=True)]
        self._sent_counts = [len(table.values) for table in self._tables]
        packing = Packing.for_values(self._columns)
        messages: list[Any] = [
            batch if rank == self._group.rank else (new_values, packing.bits, packing.pack(batch[0]), batch[1:])
            for rank, batch in enumerate(batches)
        ]
        return [
            message if rank == self._group.rank else self._translate(rank, *message)
            for rank, message in enumerate(self._group.exchange(messages))
        ]

    def _translate(
        self,
        rank: int,
        new_values: list[list[Any]],
        bits: Sequence[int],
        words: Words,
        attached: Sequence[NDArray[Any]],
    ) -> Batch:
        for table, meanings, values in zip(self._tables, self._translations[rank], new_values, strict=True):
            meanings.extend(np.array([table(value) for value in values], np.int32))
        rows = Packing(bits).unpack(words)
        for column, table_number in enumerate(self._table_of):
            rows[:, column] = self._translations[rank][table_number].array.take(rows[:, column])
        return rows, *attached
