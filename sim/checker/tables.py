"""Numbered values, and cached functions of numbers, for arrays of states.

A part of a state may be any hashable value, and its behaviour may be slow Python. Each value gets a number, and
a state is a row of numbers. A step of thousands of states is then an array look-up; Python code runs only for
new values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Numbers = NDArray[np.int32]  # numbers of values, in an array of any shape
Rows = NDArray[np.int32]  # one state per row
Flags = NDArray[np.bool_]
_UNKNOWN = np.iinfo(np.int32).min


class GrowingArray:
    """An array with amortised append of rows of ``width`` columns; one-dimensional without ``width``."""

    def __init__(self, dtype: DTypeLike, width: int | None = None):
        self._rows = np.empty((64,) if width is None else (64, width), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> NDArray[Any]:
        """All rows, as a writable view; it becomes invalid when rows are appended."""
        return self._rows[: self._length]

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        end = self._length + len(rows)
        if end > len(self._rows):
            enlarged = np.empty((max(end, len(self._rows) * 3 // 2), *self._rows.shape[1:]), self._rows.dtype)
            enlarged[: self._length] = self.array
            self._rows = enlarged
        self._rows[self._length : end] = rows
        self._length = end


class Interned:
    """Values numbered from 0, each with a 64-bit digest that does not depend on its number.

    Processes may number the same values differently; their digests agree. Two values with one digest raise
    RuntimeError.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._digests = GrowingArray(np.uint64)
        self._distinct: set[bytes] = set()

    def __call__(self, value: Hashable) -> int:
        """Return the number of a value; a new value gets the next number."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
            digest = blake2b(repr(_canonical(value)).encode(), digest_size=8).digest()
            if digest in self._distinct:
                raise RuntimeError("two values have the same 64-bit digest: the search would confuse them")
            self._distinct.add(digest)
            self._digests.extend(np.frombuffer(digest, np.dtype("<u8")))
        return number

    def all(self, values: Iterable[Hashable]) -> Numbers:
        """Return the numbers of values, in their order."""
        return np.fromiter((self(value) for value in values), np.int32)

    @property
    def digests(self) -> NDArray[np.uint64]:
        """Digests of the values, by number."""
        return self._digests.array


def _canonical(value: Any) -> Any:
    """Return a stand-in for ``value`` with the same ``repr`` for all equal values.

    An integer, an IntEnum and a flag may be equal, so all become integers. A plain enumeration's member equals
    no other value and becomes its name, as its ``repr`` may contain more.
    """
    if isinstance(value, tuple):
        return tuple(map(_canonical, value))
    if isinstance(value, int):
        return int(value)
    return value.name if isinstance(value, Enum) else value


class Table:
    """A cached function of two numbers, each from 0; its value is one integer, or ``width`` integers.

    ``function`` must not call its own table, which could grow and so change the meaning of the indices in use.
    """

    def __init__(self, function: Callable[[int, int], int | Sequence[int]], width: int | None = None):
        self._function, self._width = function, width
        self._values = np.full((1, 1) if width is None else (1, 1, width), _UNKNOWN, np.int32)

    def __call__(self, first: Numbers, second: Numbers | int = 0) -> Numbers:
        """Return the values for arrays of numbers."""
        if len(first):
            self._grow(int(first.max()) + 1, int(np.max(second)) + 1)
        columns = self._values.shape[1]
        indices = first * np.int64(columns) + second
        values = self._look_up(indices)
        missing = (values if self._width is None else values[:, 0]) == _UNKNOWN
        if missing.any():
            for index in np.unique(indices[missing]).tolist():
                pair = divmod(index, columns)
                self._values[pair] = self._function(*pair)
            values = self._look_up(indices)
        return values

    def _look_up(self, indices: NDArray[np.int64]) -> Numbers:
        flat = self._values.reshape(-1, *self._values.shape[2:])
        values: Numbers = flat.take(indices, axis=0)
        return values

    def _grow(self, rows: int, columns: int) -> None:
        old_rows, old_columns = self._values.shape[:2]
        if rows > old_rows or columns > old_columns:
            sizes = (_power_of_two(max(rows, old_rows)), _power_of_two(max(columns, old_columns)))
            values = np.full((*sizes, *self._values.shape[2:]), _UNKNOWN, np.int32)
            values[:old_rows, :old_columns] = self._values
            self._values = values


class Lists:
    """A cached function of one number, whose value is a list of rows of ``width`` integers."""

    def __init__(self, function: Callable[[int], Sequence[tuple[int, ...]]], width: int):
        self._function = function
        self._items = GrowingArray(np.int32, width)
        self._spans = Table(self._span, width=2)  # per number: start and count of its rows

    def __call__(self, numbers: Numbers) -> tuple[NDArray[np.intp], Numbers]:
        """Return the rows of all numbers' lists, each with the index of its number in ``numbers``."""
        spans = self._spans(numbers)
        starts, counts = spans[:, 0], spans[:, 1]
        source = np.repeat(np.arange(len(numbers)), counts)
        # Starts 7 and 0 with counts 2 and 3 give the indices 7, 8, 0, 1, 2.
        preceding = np.cumsum(counts) - counts  # rows of the lists before each list
        indices = np.arange(len(source)) + np.repeat(starts - preceding, counts)
        return source, self._items.array.take(indices, axis=0)

    def _span(self, number: int, _: int) -> tuple[int, int]:
        items = self._function(number)
        start = len(self._items)
        if items:
            self._items.extend(np.array(items, np.int32))
        return start, len(items)


# Constants of SplitMix64. Every process and version must use the same ones.
_SEED, _MULTIPLIER, _SHIFT = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9), np.uint64(29)


def fingerprints(columns: Sequence[Interned], rows: Rows) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row, equal in every process; ``columns``: the values of each column."""
    hashes = np.full(len(rows), _SEED, np.uint64)
    for column, interned in enumerate(columns):
        hashes ^= interned.digests.take(rows[:, column])
        hashes *= _MULTIPLIER
        hashes ^= hashes >> _SHIFT
    return hashes


def _power_of_two(minimum: int) -> int:
    return 1 << (minimum - 1).bit_length()
