"""Set of the states that a process has visited: packed states and a hash table of their numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.base.errors import CheckFailed
from fanin.sim.checker.packing import Packing, Words, chunks, hash_words
from fanin.sim.checker.tables import Flags, GrowingArray, Interned, Numbers, Rows

Places = NDArray[np.int64]  # indices of the hash table
ALL_SLOTS = -1  # in ``expanded_by``: expanded by the events of all slots
NO_SUCCESSOR = np.uint32(2**32 - 1)  # in ``successor``: no successor is known
_FREE = -1
_MAX_LOAD = 0.7  # greatest load of the hash table
_BATCH = 1 << 20  # states per step when all states are packed or hashed again


class VisitedStates:
    """Visited states, numbered in order of their first visit, level by level; ``columns`` give a row's meaning.

    States are stored and compared with all bits, so two states are never confused. A state takes its words (one
    of 64 bits in most searches), 6 to 12 bytes of the hash table, and 5 bytes for ``expanded_by`` and
    ``successor``.
    """

    def __init__(self, columns: Sequence[Interned], *, ranks: int = 1):
        self._columns = columns
        self._capacity = int(NO_SUCCESSOR) // max(2, ranks) - 1  # number and rank together fit ``successor``
        self._packing = Packing([0] * len(columns))
        self._words = [GrowingArray(np.uint64)]
        self._expanded_by, self._successor = GrowingArray(np.int8), GrowingArray(np.uint32)
        self._table = np.full(1 << 12, _FREE, np.int32)  # probed from the high bits of ``hash_words``
        self._levels = [0, 0]  # first number of each level; new states are in the last one

    def __len__(self) -> int:
        return len(self._expanded_by)

    def rows(self, numbers: Numbers | slice) -> Rows:
        """Return the states of numbers."""
        return self._packing.unpack([word.array[numbers] for word in self._words])

    @property
    def expanded_by(self) -> NDArray[np.int8]:
        """Per state: the last ample slot by whose events it was expanded, or ALL_SLOTS."""
        return self._expanded_by.array

    @property
    def successor(self) -> NDArray[np.uint32]:
        """Per state: one fault-free successor in the next level, as number · ranks + rank; or NO_SUCCESSOR."""
        return self._successor.array

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
        """Return the numbers of states; new states are numbered."""
        if len(rows):
            self._widen()
        self._reserve(len(rows))
        return self._place(self._packing.pack(rows))

    def find(self, rows: Rows) -> Numbers:
        """Return the numbers of states that have been visited. Raises LookupError for others."""
        words = self._packing.pack(rows)
        numbers = np.empty(len(rows), np.int32)
        pending, places = self._first_places(words)
        for probe in itertools.count(1):
            if not len(pending):
                return numbers
            numbers[pending] = stored = self._table.take(places)
            if (stored == _FREE).any():
                raise LookupError("a state has not been visited")
            collided = self._differ(stored, [word.take(pending) for word in words])
            pending, places = self._next_places(pending, places, collided, probe)
        raise AssertionError("itertools.count ends")

    def _place(self, words: Words) -> Numbers:
        """Find or claim a place for all states at once; return their numbers.

        Of several claims to a place, the last one wins; the others probe the next place.
        """
        table, numbers = self._table, np.empty(len(words[0]), np.int32)
        pending, places = self._first_places(words)
        for probe in itertools.count(1):
            if not len(pending):
                return numbers
            stored = table.take(places)
            free = np.flatnonzero(stored == _FREE)
            claims = _FREE - 1 - pending[free]  # unique negative numbers below _FREE
            table[places[free]] = claims
            won = free[table[places[free]] == claims]
            new = pending[won]
            table[places[won]] = np.arange(len(self), len(self) + len(new))
            self._append([word.take(new) for word in words])
            stored[free] = table[places[free]]
            numbers[pending] = stored  # provisional
            collided = self._differ(stored, [word.take(pending) for word in words])
            pending, places = self._next_places(pending, places, collided, probe)
        raise AssertionError("itertools.count ends")

    def _append(self, words: Words) -> None:
        for stored, word in zip(self._words, words, strict=True):
            stored.extend(word)
        self._expanded_by.extend(np.full(len(words[0]), ALL_SLOTS, np.int8))
        self._successor.extend(np.full(len(words[0]), NO_SUCCESSOR, np.uint32))

    def _differ(self, numbers: Numbers, words: Words) -> Flags:
        """Return, for each pair, whether the state of ``numbers`` differs from the state of ``words``."""
        differ = [stored.array.take(numbers) != word for stored, word in zip(self._words, words, strict=True)]
        return np.logical_or.reduce(differ) if len(differ) > 1 else differ[0]

    def _first_places(self, words: Words) -> tuple[Numbers, Places]:
        """Return the index of each state, and the first place of its probe sequence."""
        bits = len(self._table).bit_length() - 1
        places = (hash_words(words) >> np.uint64(64 - bits)).astype(np.int64)
        return np.arange(len(words[0]), dtype=np.int32), places

    def _next_places(
        self, pending: Numbers, places: Places, collided: Flags, probe: int
    ) -> tuple[Numbers, Places]:
        """Return the ``collided`` states and the next places to probe; growing steps avoid clusters."""
        remaining = np.flatnonzero(collided)
        return pending.take(remaining), (places.take(remaining) + probe) & (len(self._table) - 1)

    def _widen(self) -> None:
        """Pack all states again if new values need more bits."""
        wider = Packing.for_values(self._columns)
        if wider.bits == self._packing.bits:
            return
        words = self._words + [GrowingArray(np.uint64) for _ in range(wider.words - len(self._words))]
        for stored in words[len(self._words) :]:
            stored.extend(np.zeros(len(self), np.uint64))
        for part in chunks(len(self), _BATCH):
            for stored, word in zip(words, wider.pack(self.rows(part)), strict=True):
                stored.array[part] = word
        self._packing, self._words = wider, words
        self._rebuild(len(self._table))

    def _reserve(self, count: int) -> None:
        """Make room for ``count`` more states. Raises CheckFailed at the limit of state numbers."""
        if len(self) + count > self._capacity:
            raise CheckFailed(f"a process of the search holds {self._capacity:,} states at most")
        size = len(self._table)
        while len(self) + count > size * _MAX_LOAD:
            size *= 2
        if size > len(self._table):
            self._rebuild(size)

    def _rebuild(self, size: int) -> None:
        """Make a new hash table, after the memory of the old one is freed."""
        del self._table
        self._table = np.full(size, _FREE, np.int32)
        for part in chunks(len(self), _BATCH):
            pending, places = self._first_places([word.array[part] for word in self._words])
            for probe in itertools.count(1):
                if not len(pending):
                    break
                free = self._table[places] == _FREE
                self._table[places[free]] = pending[free] + part.start
                pending, places = self._next_places(
                    pending, places, self._table[places] != pending + part.start, probe
                )
