"""States in few bits: rows of numbers as words of 64 bits, from which they can be read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.sim.checker.tables import Interned, Rows

Words = list[NDArray[np.uint64]]  # of states side by side: the first word of each, the second, …
_WORD = 64
_MIXERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Packing:
    """Rows as words, with ``bits`` for the numbers of each column; rows are equal where their words are."""

    def __init__(self, bits: Sequence[int]):
        self.bits = tuple(bits)
        self._places: list[tuple[int, int]] = []  # of each column: its word, and how far left it stands there
        word = used = 0
        for width in self.bits:
            if used + width > _WORD:
                word, used = word + 1, 0
            self._places.append((word, used))
            used += width
        self.words = word + 1

    @classmethod
    def for_values(cls, columns: Sequence[Interned]) -> Packing:
        """With as many bits as the values that ``columns`` have by now."""
        return cls([(len(column.values) - 1).bit_length() for column in columns])

    def pack(self, rows: Rows) -> Words:
        """The words of states."""
        words = [np.zeros(len(rows), np.uint64) for _ in range(self.words)]
        for column, (word, shift) in enumerate(self._places):
            words[word] |= rows[:, column].astype(np.uint64) << np.uint64(shift)
        return words

    def unpack(self, words: Words) -> Rows:
        """The rows again."""
        rows = np.empty((len(words[0]), len(self.bits)), np.int32)
        for column, ((word, shift), width) in enumerate(zip(self._places, self.bits, strict=True)):
            rows[:, column] = (words[word] >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        return rows


def mixed(words: Words) -> NDArray[np.uint64]:
    """64 bits in which all bits of a state's words have a part, the high ones above all."""
    first, second = _MIXERS
    hashed = np.zeros(len(words[0]), np.uint64)
    for word in words:
        hashed = (hashed ^ word) * first
        hashed ^= hashed >> np.uint64(32)
        hashed *= second
    return hashed


def chunks(count: int, size: int) -> Iterator[slice]:
    """``range(count)`` in slices of ``size`` at most."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))
