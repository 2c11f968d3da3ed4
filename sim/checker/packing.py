"""Compact states: rows of numbers packed into 64-bit words, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.tables import Interned, Rows

Words = list[NDArray[np.uint64]]  # of many states: the array of all first words, of all second words, …
_WORD = 64
_HASH_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Packing:
    """Format of packed rows: ``bits`` per column. Two rows are equal if and only if their words are."""

    def __init__(self, bits: Sequence[int]):
        self.bits = tuple(bits)
        self._places: list[tuple[int, int]] = []  # per column: its word, and its shift in that word
        word = used = 0
        for width in self.bits:
            if used + width > _WORD:
                word, used = word + 1, 0
            self._places.append((word, used))
            used += width
        self.words = word + 1

    @classmethod
    def for_values(cls, columns: Sequence[Interned]) -> Packing:
        """Return a packing with enough bits for the values that ``columns`` have now."""
        return cls([(len(column.values) - 1).bit_length() for column in columns])

    def pack(self, rows: Rows) -> Words:
        """Return the words of rows."""
        words = [np.zeros(len(rows), np.uint64) for _ in range(self.words)]
        for column, (word, shift) in enumerate(self._places):
            words[word] |= rows[:, column].astype(np.uint64) << np.uint64(shift)
        return words

    def unpack(self, words: Words) -> Rows:
        """Return the rows of words."""
        rows = np.empty((len(words[0]), len(self.bits)), np.int32)
        for column, ((word, shift), width) in enumerate(zip(self._places, self.bits, strict=True)):
            rows[:, column] = (words[word] >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        return rows


def hash_words(words: Words) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each state's words; the high bits are the best mixed."""
    first, second = _HASH_FACTORS
    hashed = np.zeros(len(words[0]), np.uint64)
    for word in words:
        hashed = (hashed ^ word) * first
        hashed ^= hashed >> np.uint64(32)
        hashed *= second
    return hashed


def chunks(count: int, size: int) -> Iterator[slice]:
    """Return ``range(count)`` in slices of at most ``size``."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
