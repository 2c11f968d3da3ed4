"""The states that a process has visited, in a hash table of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.tables import Growing, Interned, Numbers, Rows

Fingerprints = NDArray[np.uint64]
NO_PARENT = np.uint64(2**64 - 1)
_FREE = -1
_FULL = 0.5  # of the table at most


class Visited:
    """States numbered in the order in which they came, level by level; rows whose numbers mean ``columns``.

    A state is found by its fingerprint, and then compared in full: RuntimeError if two states share one.
    """

    def __init__(self, columns: Sequence[Interned]):
        self._columns = columns
        self._rows = Growing(np.int32, len(columns))
        self._fingerprints, self._parents = Growing(np.uint64), Growing(np.uint64)
        self._fully = Growing(np.bool_)
        self._table = np.full(1 << 12, _FREE, np.int32)  # linear probing, from the fingerprint's low bits
        self._levels = [0, 0]  # where each begins; the last one is that which new states are in

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Rows:
        """By number."""
        return self._rows.array

    @property
    def fingerprints(self) -> Fingerprints:
        """By number."""
        return self._fingerprints.array

    @property
    def parents(self) -> Fingerprints:
        """The fingerprint of the state before, by number: the least of those in the level before."""
        return self._parents.array

    @property
    def fully(self) -> NDArray[np.bool_]:
        """Whether a state was expanded with the events of all slots, by number."""
        return self._fully.array

    @property
    def frontier(self) -> range:
        """The numbers of the level that is expanded."""
        return range(self._levels[-2], self._levels[-1])

    def next_level(self) -> None:
        """What was new is expanded from now on."""
        self._levels.append(len(self))

    def level(self, number: int) -> int:
        """How many events lead to a state."""
        return int(np.searchsorted(self._levels[2:], number, side="right"))

    def end_of(self, level: int) -> int:
        """Behind the number of its last state."""
        return self._levels[level + 2]

    def add(self, rows: Rows, marks: Fingerprints, parents: Fingerprints) -> Numbers:
        """The numbers of states, and of new ones their fingerprints and those of the states before them."""
        self._reserve(len(rows))
        numbers = self._place(rows, marks)
        if (self.rows[numbers] != rows).any():
            raise RuntimeError("two states share a fingerprint of 64 bits: the search would take them for one")
        new = numbers >= self._levels[-1]
        np.minimum.at(self.parents, numbers[new], parents[new])
        return numbers

    def find(self, mark: int) -> int:
        """The number of the state with a fingerprint; it must have been visited."""
        at = mark & (len(self._table) - 1)
        while int(self.fingerprints[self._table[at]]) != mark:
            at = (at + 1) & (len(self._table) - 1)
        return int(self._table[at])

    def _place(self, rows: Rows, marks: Fingerprints) -> Numbers:
        """Look all places up at once; of new states that claim the same one, the last gets it."""
        table, last = self._table, len(self._table) - 1
        numbers = np.empty(len(rows), np.int32)
        waiting = np.arange(len(rows), dtype=np.int32)
        at = (marks & np.uint64(last)).astype(np.int64)
        while len(waiting):
            found = table[at]
            free = np.flatnonzero(found == _FREE)
            claims = _FREE - 1 - waiting[free]  # below _FREE, each another number
            table[at[free]] = claims
            won = free[table[at[free]] == claims]
            new = waiting[won]
            found[won] = table[at[won]] = np.arange(len(self), len(self) + len(new))
            self._append(rows[new], marks[new])
            found[free] = table[at[free]]
            there = self.fingerprints[found] == marks[waiting]
            numbers[waiting[there]] = found[there]
            waiting, at = waiting[~there], (at[~there] + 1) & last
        return numbers

    def _append(self, rows: Rows, marks: Fingerprints) -> None:
        self._rows.extend(rows)
        self._fingerprints.extend(marks)
        self._parents.extend(np.full(len(rows), NO_PARENT))
        self._fully.extend(np.zeros(len(rows), bool))

    def _reserve(self, more: int) -> None:
        """Room for as many states more."""
        size = 1 << int((len(self) + more) / _FULL).bit_length()
        if size <= len(self._table):
            return
        self._table = np.full(size, _FREE, np.int32)
        waiting = np.arange(len(self), dtype=np.int32)
        at = (self.fingerprints & np.uint64(size - 1)).astype(np.int64)
        while len(waiting):
            free = self._table[at] == _FREE
            self._table[at[free]] = waiting[free]
            left = self._table[at] != waiting
            waiting, at = waiting[left], (at[left] + 1) & (size - 1)
