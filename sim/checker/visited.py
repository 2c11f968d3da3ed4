"""The states that a process has visited, packed, with a hash table of their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.base.errors import CheckFailed
from fanin.sim.checker.packing import Packing, Words, chunks, mixed
from fanin.sim.checker.tables import Flags, Growing, Interned, Numbers, Rows

Places = NDArray[np.int64]  # indices of the hash table
WHOLLY = -1  # in ``taken``: expanded by the events of all slots
NOWHERE = np.uint32(2**32 - 1)  # in ``onward``: no successor is known
_FREE = -1
_FULL = 0.7  # greatest load of the hash table
_AT_ONCE = 1 << 20  # states per step when all states are packed or hashed again


class Visited:
    """Visited states, numbered in order of their first visit, level by level; ``columns`` give a row's meaning.

    States are stored and compared with all bits, so two states are never confused. A state takes its words (one
    of 64 bits in most searches), 6 to 12 bytes of the hash table, and 5 bytes for ``taken`` and ``onward``.
    """

    def __init__(self, columns: Sequence[Interned], *, ranks: int = 1):
        self._columns = columns
        self._most = int(NOWHERE) // max(2, ranks) - 1  # number and rank together fit ``onward``
        self._packing = Packing([0] * len(columns))
        self._words = [Growing(np.uint64)]
        self._taken, self._onward = Growing(np.int8), Growing(np.uint32)
        self._table = np.full(1 << 12, _FREE, np.int32)  # probed from the high bits of ``mixed``
        self._levels = [0, 0]  # first number of each level; new states are in the last one

    def __len__(self) -> int:
        return len(self._taken)

    def rows(self, numbers: Numbers | slice) -> Rows:
        """Return the states of numbers."""
        return self._packing.unpack([word.array[numbers] for word in self._words])

    @property
    def taken(self) -> NDArray[np.int8]:
        """Per state: the last ample slot by whose events it was expanded, or WHOLLY."""
        return self._taken.array

    @property
    def onward(self) -> NDArray[np.uint32]:
        """Per state: one fault-free successor in the next level, as number · ranks + rank; or NOWHERE."""
        return self._onward.array

    @property
    def frontier(self) -> range:
        """Numbers of the level that is being expanded."""
        return self.level(self.depth)

    @property
    def depth(self) -> int:
        """Number of events from the start to the level that is being expanded."""
        return len(self._levels) - 3

    def next_level(self) -> None:
        """Close the level of new states, which is expanded from now on."""
        self._levels.append(len(self))

    def level(self, depth: int) -> range:
        """Return the numbers of the states ``depth`` events after the start."""
        return range(self._levels[depth + 1], self._levels[depth + 2])

    def numbers(self, depth: int) -> Numbers:
        """Return the numbers of ``level`` as an array."""
        span = self.level(depth)
        return np.arange(span.start, span.stop, dtype=np.int32)

    def level_of(self, number: int) -> int:
        """Return the number of events from the start to a state."""
        return int(np.searchsorted(self._levels[2:], number, side="right"))

    def add(self, rows: Rows) -> Numbers:
        """Return the numbers of states; new states get one."""
        if len(rows):
            self._widen()
        self._reserve(len(rows))
        return self._place(self._packing.pack(rows))

    def find(self, rows: Rows) -> Numbers:
        """Return the numbers of states that have been visited. Raises LookupError for others."""
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
        """Find or claim a place for all states at once; the last of several claims to a place wins."""
        table, numbers = self._table, np.empty(len(words[0]), np.int32)
        waiting, at = self._first(words)
        for probe in itertools.count(1):
            if not len(waiting):
                return numbers
            found = table.take(at)
            free = np.flatnonzero(found == _FREE)
            claims = _FREE - 1 - waiting[free]  # unique negative numbers below _FREE
            table[at[free]] = claims
            won = free[table[at[free]] == claims]
            new = waiting[won]
            table[at[won]] = np.arange(len(self), len(self) + len(new))
            self._append([word.take(new) for word in words])
            found[free] = table[at[free]]
            numbers[waiting] = found  # provisional
            others = self._are_others(found, [word.take(waiting) for word in words])
            waiting, at = self._next(waiting, at, others, probe)
        raise AssertionError("itertools.count ends")

    def _append(self, words: Words) -> None:
        for held, word in zip(self._words, words, strict=True):
            held.extend(word)
        self._taken.extend(np.full(len(words[0]), WHOLLY, np.int8))
        self._onward.extend(np.full(len(words[0]), NOWHERE, np.uint32))

    def _are_others(self, numbers: Numbers, words: Words) -> Flags:
        """Return which states of ``numbers`` differ from the states of ``words``."""
        differ = [held.array.take(numbers) != word for held, word in zip(self._words, words, strict=True)]
        return np.logical_or.reduce(differ) if len(differ) > 1 else differ[0]

    def _first(self, words: Words) -> tuple[Numbers, Places]:
        """Return the index of each state, and the first place of its probe sequence."""
        bits = len(self._table).bit_length() - 1
        return np.arange(len(words[0]), dtype=np.int32), (mixed(words) >> np.uint64(64 - bits)).astype(np.int64)

    def _next(self, waiting: Numbers, at: Places, which: Flags, probe: int) -> tuple[Numbers, Places]:
        """Return the states to probe further, and their next places; growing steps avoid clusters."""
        left = np.flatnonzero(which)
        return waiting.take(left), (at.take(left) + probe) & (len(self._table) - 1)

    def _widen(self) -> None:
        """Pack all states again if new values need more bits."""
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
        """Make room for ``more`` states. Raises CheckFailed at the limit of state numbers."""
        if len(self) + more > self._most:
            raise CheckFailed(f"a process of the search holds {self._most:,} states at most")
        size = len(self._table)
        while len(self) + more > size * _FULL:
            size *= 2
        if size > len(self._table):
            self._rebuild(size)

    def _rebuild(self, size: int) -> None:
        """Make a new hash table, after the memory of the old one is freed."""
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
