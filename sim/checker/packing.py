"""Compact states: rows of numbers, one per column, packed into 64-bit words, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.tables import Interned, Rows

Words = list[NDArray[np.uint64]]  # of many states: the array of all first words, of all second words, …
_WORD_BITS = 64
_MAX_BITS = 31  # of a column: rows are int32, without negative numbers
_HASH_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # odd constants of splitmix64


class Packing:
    """Format of packed rows. Two rows are equal if and only if their words are.

    - ``bits``: width of each column, 0 to 31 bits. A column's numbers must be 0 to 2^bits - 1; ``pack`` does
      not check them. A column of 0 bits has the number 0 in every row. No column crosses the end of a word.
    """

    def __init__(self, bits: Sequence[int]):
        self.bits = tuple(bits)
        for column, width in enumerate(self.bits):
            if not 0 <= width <= _MAX_BITS:
                raise ValueError(f"bits of column {column} must be 0 to {_MAX_BITS}, not {width!r}")
        self._places: list[tuple[int, int]] = []  # per column: its word, and its shift in that word
        word = used = 0
        for width in self.bits:
            if used + width > _WORD_BITS:
                word, used = word + 1, 0
            self._places.append((word, used))
            used += width
        self.words = word + 1

    @classmethod
    def for_values(cls, columns: Sequence[Interned]) -> Packing:
        """Return a packing for the values interned in ``columns`` so far.

        The numbers of values that are interned later may not fit; ``VisitedStates`` then packs all states
        again.
        """
        return cls([(len(column.values) - 1).bit_length() for column in columns])

    def pack(self, rows: Rows) -> Words:
        """Return the words of rows of shape (states, columns). The numbers must fit ``bits``."""
        words = [np.zeros(len(rows), np.uint64) for _ in range(self.words)]
        for column, (word, shift) in enumerate(self._places):
            words[word] |= rows[:, column].astype(np.uint64) << np.uint64(shift)
        return words

    def unpack(self, words: Words) -> Rows:
        """Return the rows (states, columns) of words that ``pack`` has returned."""
        rows = np.empty((len(words[0]), len(self.bits)), np.int32)
        for column, ((word, shift), width) in enumerate(zip(self._places, self.bits, strict=True)):
            rows[:, column] = (words[word] >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        return rows


def hash_words(words: Words) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each state's words.

    The high bits are the best mixed; ``VisitedStates`` places a state in its table by them.
    """
    first, second = _HASH_FACTORS
    hashed = np.zeros(len(words[0]), np.uint64)
    for word in words:
        hashed = (hashed ^ word) * first
        hashed ^= hashed >> np.uint64(32)
        hashed *= second
    return hashed


def chunks(count: int, size: int) -> Iterator[slice]:
    """Yield the slices of at most ``size`` indices that cut ``range(count)``; none if ``count`` is 0."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
