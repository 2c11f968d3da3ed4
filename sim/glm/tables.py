"""Samples from tables: CSV with a header, and NumPy's .npz."""

from __future__ import annotations

import csv
import itertools
import math
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.base.archive import max_unpacked_bytes, member_names, read_archive
from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Features, Float64
from fanin.sim.glm.files import READ_ERRORS, number_in, open_bytes

Labels = npt.NDArray[np.float64] | npt.NDArray[np.str_]

#: Maximum bytes of a record of a CSV file, and maximum number of distinct words in a column of labels.
MAX_RECORD_BYTES, MAX_WORDS = 16 << 20, 1 << 16
_CHARACTER_BYTES = 4  # bytes, in NumPy's arrays of texts

_DELIMITERS = ",;\t"
_CSR_NAMES = ("data", "indices", "indptr", "shape")  # as scipy.sparse.save_npz writes a CSR matrix
_ARRAY_NAMES = (("features", "labels"), ("X", "y"), ("x", "y"))  # accepted names of the arrays of an .npz
_UNREADABLE = (*READ_ERRORS, zlib.error, zipfile.BadZipFile)
_BOOLEANS = {"false": "0", "true": "1"}  # as written by pandas and R, in lower case


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose first line names the columns; samples are read on demand.

    - ``names``: names of the columns, without an index column.
    - ``indexed``: True if the first column has no name: it is the index that pandas writes, and is ignored.
    """

    path: Path
    names: list[str] = field(default_factory=list)
    indexed: bool = False

    @classmethod
    def open(cls, path: Path) -> CsvTable:
        """Read the header of a file with commas, semicolons or tabs. Raises InputError, FileNotFoundError."""
        line, cells = next(_records(path), (0, []))
        indexed = len(cells) > 1 and not cells[0]
        names = cells[indexed:]
        known_names: set[str] = set()
        for number, name in enumerate(names, start=1 + indexed):
            if number_in(name) is not None:
                cause = f"no header: {name!r} is a number, but the first line must name the columns"
            elif not name:
                cause = f"column {number} has no name"
            elif name in known_names:
                cause = f"two columns are called {name!r}"
            else:
                known_names.add(name)
                continue
            raise InputError(f"{path}:{line}: {cause}")
        return cls(path, names, indexed)

    def column(self, name: str) -> int:
        """Return the index of a column. Raises InputError that lists the columns."""
        if name not in self._indices:
            examples = ", ".join(self.names[:6]) + (", …" if len(self.names) > 6 else "")
            raise InputError(f"{self.path}: no column {name!r}; there are {examples or 'none'}")
        return self._indices[name]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def read(self, columns: Sequence[str], target: str) -> tuple[Float64, Labels | None]:
        """Return the numbers in ``columns``, and the labels in column ``target`` if the file has it.

        False and true are 0 and 1. Memory: 8 bytes a number, and a record. Raises InputError with line and
        column.
        """
        indices = [self.column(name) for name in columns]
        labels = _LabelColumn(self.path, target) if target in self._indices else None
        field_count = len(self.names) + self.indexed
        values = array("d")
        for line, cells in itertools.islice(_records(self.path), 1, None):
            if len(cells) != field_count:
                raise InputError(f"{self.path}:{line}: {len(cells)} fields, but the header has {field_count}")
            texts = [cells[k + self.indexed] for k in indices]
            try:
                row = [math.nan] if "_" in ",".join(texts) else [float(text) for text in texts]
            except ValueError:
                row = [math.nan]
            if not all(map(math.isfinite, row)):
                row = [self._feature(line, name, text) for name, text in zip(columns, texts, strict=True)]
            values.extend(row)
            if labels is not None:
                labels.add(line, cells[self._indices[target] + self.indexed])
        features = np.asarray(values).reshape(-1, len(indices))
        return features, None if labels is None else labels.labels()

    def _feature(self, line: int, name: str, cell: str) -> float:
        value = _finite(cell)
        if value is None:
            raise _bad_cell(self.path, line, name, cell)
        return value


class _LabelColumn:
    """A column of labels, read cell by cell: all numbers, or all words."""

    def __init__(self, path: Path, name: str):
        self._path, self._name = path, name
        self._numbers = array("d")
        self._words: dict[str, int] = {}  # index of each distinct word
        self._indices = array("i")  # of the cells' words, while all cells are words
        self._all_words = True
        self._first_bad: tuple[int, str] | None = None  # line and cell of the first that is no number

    def add(self, line: int, cell: str) -> None:
        """Add the next cell. Raises InputError."""
        self._all_words = self._all_words and bool(cell) and number_in(cell) is None
        value = _finite(cell)
        self._numbers.append(math.nan if value is None else value)
        if value is None and self._first_bad is None:
            self._first_bad = line, cell
        if self._all_words:
            self._indices.append(self._words.setdefault(cell, len(self._words)))
            if len(self._words) > MAX_WORDS:
                cause = f"has more than {MAX_WORDS:,} different words"
                raise InputError(f"{self._path}:{line}: column {self._name!r}: {cause}")
        elif self._first_bad:
            raise _bad_cell(self._path, self._first_bad[0], self._name, self._first_bad[1])

    def labels(self) -> Labels:
        """Return the labels. Raises InputError if an array of the words takes too much memory."""
        if not self._all_words or not self._indices:
            return np.asarray(self._numbers)
        longest = max(map(len, self._words))
        if len(self._indices) * longest * _CHARACTER_BYTES > (limit := max_unpacked_bytes(self._path)):
            cause = f"words of {longest:,} characters take more than {limit:,} bytes"
            raise InputError(f"{self._path}: column {self._name!r}: {cause}")
        return np.array(list(self._words))[np.asarray(self._indices)]


def _finite(cell: str) -> float | None:
    """Return the finite number in a cell (false is 0, true is 1); None for any other text."""
    value = number_in(_BOOLEANS.get(cell.lower(), cell))
    return value if value is not None and math.isfinite(value) else None


def _bad_cell(path: Path, line: int, name: str, cell: str) -> InputError:
    cause = (
        f"{cell[:20]!r} is not a {'' if number_in(cell) is None else 'finite '}number" if cell else "is empty"
    )
    return InputError(f"{path}:{line}: column {name!r}: {cause}")


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record that is not empty, and the line on which it ends. Raises InputError."""
    delimiter, skipped_lines = _delimiter(path)
    line = 0
    try:
        for line, row in _rows(path, delimiter, strict=True):
            cells = [cell.strip() for cell in row]
            if line > skipped_lines and any(cells):  # Excel's line of the delimiter is none
                yield line, cells
    except csv.Error as error:
        raise InputError(f"{path}:{line + 1}: not CSV: {error}") from error


class _Lines:
    """Iterator over the lines of a CSV file.

    ``remaining``: bytes that the current record may still have; the caller resets it after each record. Raises
    FileNotFoundError, and InputError for a damaged file or a record that is too long.
    """

    def __init__(self, path: Path):
        self._path = path
        self.remaining = MAX_RECORD_BYTES

    def __iter__(self) -> Iterator[str]:
        begin = 0
        try:
            with open_bytes(self._path) as file:
                while line := file.readline(self.remaining + 1):
                    self.remaining -= len(line)
                    if self.remaining < 0:
                        raise InputError(f"{self._path}: has a record of more than {MAX_RECORD_BYTES:,} bytes")
                    yield line.decode("utf-8" if begin else "utf-8-sig")
                    begin += len(line)
        except FileNotFoundError:
            raise
        except UnicodeDecodeError as error:
            raise InputError(f"{self._path}: not CSV: byte {begin + error.start} is no UTF-8") from error
        except _UNREADABLE as error:
            raise InputError(f"{self._path}: cannot be read: {error}") from error


def _rows(path: Path, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a file, and the line on which it ends. Raises csv.Error, and as :class:`_Lines`."""
    lines = _Lines(path)
    rows = csv.reader(iter(lines), delimiter=delimiter, skipinitialspace=True, strict=strict)
    for row in rows:
        lines.remaining = MAX_RECORD_BYTES
        yield rows.line_num, row


def _delimiter(path: Path) -> tuple[str, int]:
    """Return the delimiter of the first record, and the number of lines before that record.

    Excel may write ``sep=;`` as the first line; otherwise the delimiter is the one that gives the most fields.
    """
    first = next(iter(_Lines(path)), "").rstrip("\r\n")
    if len(first) == 5 and first.lower().startswith("sep="):
        return first[4], 1

    def fields(delimiter: str) -> int:
        try:
            return len(next((row for _, row in _rows(path, delimiter) if any(map(str.strip, row))), []))
        except csv.Error:
            return 0

    return max(_DELIMITERS, key=fields), 0


def read_npz(path: Path) -> tuple[Features, Labels | None]:
    """Return features, one sample per row (more dimensions are flattened), and labels if there are any.

    The arrays of a CSR matrix, as SciPy writes them, give sparse features. Raises InputError and
    FileNotFoundError.
    """
    try:
        arrays = read_archive(path, {*_CSR_NAMES, *(name for pair in _ARRAY_NAMES for name in pair)})
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    if arrays.keys() >= set(_CSR_NAMES):
        name = next((name for _, name in _ARRAY_NAMES if name in arrays), "labels")
        return _checked(path, _csr(path, arrays), arrays.get(name), name)
    pair = next((pair for pair in _ARRAY_NAMES if pair[0] in arrays), None)
    if pair is None:
        accepted = " or ".join(" and ".join(pair) for pair in _ARRAY_NAMES[:2])
        raise InputError(f"{path}: has {member_names(path)}, but not {accepted}")
    features, labels = arrays[pair[0]], arrays.get(pair[1])
    if features.ndim < 2:
        raise InputError(f"{path}: {pair[0]} must have a row for each sample, not shape {features.shape}")
    numbers = _numbers(path, pair[0], features).reshape(len(features), math.prod(features.shape[1:]))
    return _checked(path, numbers, labels, pair[1])


def _checked(
    path: Path, features: Features, labels: npt.NDArray[Any] | None, name: str
) -> tuple[Features, Labels | None]:
    """Return features, and labels as numbers or words. Raises InputError for labels of another number."""
    samples = features.shape[0]
    if labels is not None and labels.shape != (samples,):
        raise InputError(f"{path}: {samples} samples, but {name} of shape {labels.shape}")
    if labels is None or labels.dtype.kind == "U":
        return features, labels
    return features, _numbers(path, name, labels)


def _csr(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> sparse.csr_matrix:
    """Return the CSR matrix of a file's arrays. Raises InputError for arrays that make none."""
    data, indices, indptr, shape = (arrays[name] for name in _CSR_NAMES)
    try:
        if any(array.dtype.kind not in "iu" for array in (indices, indptr, shape)) or shape.shape != (2,):
            raise ValueError("indices, indptr and shape must be integers, and shape two of them")
        values = _numbers(path, "data", data)
        matrix = sparse.csr_matrix((values, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{path}: no CSR matrix: {error}") from error
    return matrix


def _numbers(path: Path, name: str, array: npt.NDArray[Any]) -> Float64:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: {name} are {array.dtype}, not numbers")
    numbers = array.astype(np.float64)
    for index in np.argwhere(~np.isfinite(numbers))[:1].tolist():
        value = numbers[tuple(index)]
        raise InputError(f"{path}: {name}[{', '.join(map(str, index))}] is {value:g}, not a finite number")
    return numbers
