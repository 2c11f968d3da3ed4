"""The states that a process has visited: packed, and found by a hash table of their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.base.errors import CheckFailed
from fanin.sim.checker.packing import Packing, Words, chunks, mixed
from fanin.sim.checker.tables import Flags, Growing, Interned, Numbers, Rows

Places = NDArray[np.int64]  # in the hash table
WHOLLY = -1  # in ``taken``: the events of all slots
NOWHERE = np.uint32(2**32 - 1)  # in ``onward``
_FREE = -1
_FULL = 0.7  # of the table at most
_AT_ONCE = 1 << 20  # states that are packed anew, or get their place in a new table


class Visited:
    """States numbered in the order in which they came, level by level; rows whose numbers mean ``columns``.

    States are held, and compared, as all the bits of their numbers: none is ever taken for another. A state
    takes its words (one of 64 bits in most searches), 6 to 12 bytes of the table, and 5 of what it is left by.
    """

    def __init__(self, columns: Sequence[Interned], *, ranks: int = 1):
        self._columns = columns
        self._most = int(NOWHERE) // max(2, ranks) - 1  # so that number and rank fit in ``onward``
        self._packing = Packing([0] * len(columns))
        self._words = [Growing(np.uint64)]
        self._taken, self._onward = Growing(np.int8), Growing(np.uint32)
        self._table = np.full(1 << 12, _FREE, np.int32)  # probed from the high bits of ``mixed``
        self._levels = [0, 0]  # where each begins; the last one is that which new states are in

    def __len__(self) -> int:
        return len(self._taken)

    def rows(self, numbers: Numbers | slice) -> Rows:
        """The states of these numbers."""
        return self._packing.unpack([word.array[numbers] for word in self._words])

    @property
    def taken(self) -> NDArray[np.int8]:
        """By which events a state was left: of its ample slots up to this one; or WHOLLY."""
        return self._taken.array

    @property
    def onward(self) -> NDArray[np.uint32]:
        """To which state of the next level a way without faults leads: number · ranks + rank; or NOWHERE."""
        return self._onward.array

    @property
    def frontier(self) -> range:
        """The numbers of the level that is expanded."""
        return self.level(self.depth)

    @property
    def depth(self) -> int:
        """How many events lead to the level that is expanded."""
        return len(self._levels) - 3

    def next_level(self) -> None:
        """What was new is expanded from now on."""
        self._levels.append(len(self))

    def level(self, depth: int) -> range:
        """The numbers of the states that so many events lead to."""
        return range(self._levels[depth + 1], self._levels[depth + 2])

    def numbers(self, depth: int) -> Numbers:
        """The same as an array."""
        span = self.level(depth)
        return np.arange(span.start, span.stop, dtype=np.int32)

    def level_of(self, number: int) -> int:
        """How many events lead to a state."""
        return int(np.searchsorted(self._levels[2:], number, side="right"))

    def add(self, rows: Rows) -> Numbers:
        """The numbers of states, of which some may be new."""
        if len(rows):
            self._widen()
        self._reserve(len(rows))
        return self._place(self._packing.pack(rows))

    def find(self, rows: Rows) -> Numbers:
        """The numbers of states that have been visited."""
        words = self._packing.pack(rows)
        numbers = np.empty(len(rows), np.int32)
        waiting, at = self._first(words)
        for probe in itertools.count(1):
            if not len(waiting):
                return numbers
            numbers[waiting] = found = self._table.take(at)
            if (found == _FREE).any():
                raise LookupError("a state has not been visited")
            others = self._are_others(found, [word.take(waiting) for word in words])
            waiting, at = self._next(waiting, at, others, probe)
        raise AssertionError("itertools.count ends")

    def _place(self, words: Words) -> Numbers:
        """Look all places up at once; of new states that claim the same one, the last gets it."""
        table, numbers = self._table, np.empty(len(words[0]), np.int32)
        waiting, at = self._first(words)
        for probe in itertools.count(1):
            if not len(waiting):
                return numbers
            found = table.take(at)
            free = np.flatnonzero(found == _FREE)
            claims = _FREE - 1 - waiting[free]  # below _FREE, each another number
            table[at[free]] = claims
            won = free[table[at[free]] == claims]
            new = waiting[won]
            table[at[won]] = np.arange(len(self), len(self) + len(new))
            self._append([word.take(new) for word in words])
            found[free] = table[at[free]]
            numbers[waiting] = found  # so far
            others = self._are_others(found, [word.take(waiting) for word in words])
            waiting, at = self._next(waiting, at, others, probe)
        raise AssertionError("itertools.count ends")

    def _append(self, words: Words) -> None:
        for held, word in zip(self._words, words, strict=True):
            held.extend(word)
        self._taken.extend(np.full(len(words[0]), WHOLLY, np.int8))
        self._onward.extend(np.full(len(words[0]), NOWHERE, np.uint32))

    def _are_others(self, numbers: Numbers, words: Words) -> Flags:
        """Which of the states of these numbers are not those of these words."""
        differ = [held.array.take(numbers) != word for held, word in zip(self._words, words, strict=True)]
        return np.logical_or.reduce(differ) if len(differ) > 1 else differ[0]

    def _first(self, words: Words) -> tuple[Numbers, Places]:
        """The places of all states, side by side, and where in the table each is looked for first."""
        bits = len(self._table).bit_length() - 1
        return np.arange(len(words[0]), dtype=np.int32), (mixed(words) >> np.uint64(64 - bits)).astype(np.int64)

    def _next(self, waiting: Numbers, at: Places, which: Flags, probe: int) -> tuple[Numbers, Places]:
        """Those that are looked for further, and where: a longer step each time, for places form no rows so."""
        left = np.flatnonzero(which)
        return waiting.take(left), (at.take(left) + probe) & (len(self._table) - 1)

    def _widen(self) -> None:
        """Pack anew if values came that need more bits than there are."""
        wider = Packing.for_values(self._columns)
        if wider.bits == self._packing.bits:
            return
        words = self._words + [Growing(np.uint64) for _ in range(wider.words - len(self._words))]
        for held in words[len(self._words) :]:
            held.extend(np.zeros(len(self), np.uint64))
        for part in chunks(len(self), _AT_ONCE):
            for held, word in zip(words, wider.pack(self.rows(part)), strict=True):
                held.array[part] = word
        self._packing, self._words = wider, words
        self._rebuild(len(self._table))

    def _reserve(self, more: int) -> None:
        """Room for as many states more. Raises CheckFailed when they have no numbers."""
        if len(self) + more > self._most:
            raise CheckFailed(f"a process of the search holds {self._most:,} states at most")
        size = len(self._table)
        while len(self) + more > size * _FULL:
            size *= 2
        if size > len(self._table):
            self._rebuild(size)

    def _rebuild(self, size: int) -> None:
        """A new table, once the old one's memory is free."""
        del self._table
        self._table = np.full(size, _FREE, np.int32)
        for part in chunks(len(self), _AT_ONCE):
            waiting, at = self._first([word.array[part] for word in self._words])
            for probe in itertools.count(1):
                if not len(waiting):
                    break
                free = self._table[at] == _FREE
                self._table[at[free]] = waiting[free] + part.start
                waiting, at = self._next(waiting, at, self._table[at] != waiting + part.start, probe)
