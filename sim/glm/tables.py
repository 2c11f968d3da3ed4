"""Samples from tables: CSV with a header, and NumPy's .npz."""

from __future__ import annotations

import csv
import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.archive import member_names, read_archive
from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Float64
from fanin.sim.glm.files import READ_ERRORS, number_in, open_bytes

Labels = npt.NDArray[np.float64] | npt.NDArray[np.str_]

_DELIMITERS = ",;\t"
_PAIRS = (("features", "labels"), ("X", "y"), ("x", "y"))  # accepted names of the arrays of an .npz
_UNREADABLE = (*READ_ERRORS, zlib.error, zipfile.BadZipFile)
_BOOLEANS = {"false": "0", "true": "1"}  # as written by pandas and R, in lower case


@dataclass(frozen=True)
class CsvTable:
    """A CSV file, whose first line names the columns.

    - ``names``: the columns.
    - ``cells``: one list per sample.
    - ``lines``: line on which each sample ends.
    - ``indexed``: the first column has no name, like the index that pandas writes; the other fields omit it.
    """

    path: Path
    names: list[str] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    indexed: bool = False

    @classmethod
    def read(cls, path: Path) -> CsvTable:
        """Read a file with commas, semicolons or tabs as delimiters. Raises InputError, FileNotFoundError."""
        try:
            with open_bytes(path) as file:
                text = file.read().decode("utf-8-sig")
        except FileNotFoundError:
            raise
        except _UNREADABLE as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not CSV: byte {error.start} is no UTF-8") from error
        delimiter, before = _delimiter(text)
        rows = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
        table = None
        try:
            for row in rows:
                cells = [cell.strip() for cell in row]
                if rows.line_num <= before or not any(cells):
                    continue  # Excel's line with the delimiter, or an empty line
                if table is None:
                    table = cls._of_header(path, cells, rows.line_num)
                else:
                    table._take(cells, rows.line_num)
        except csv.Error as error:
            raise InputError(f"{path}:{rows.line_num}: not CSV: {error}") from error
        return table or cls(path)

    def _take(self, cells: list[str], line: int) -> None:
        wanted = len(self.names) + self.indexed
        if len(cells) != wanted:
            raise InputError(f"{self.path}:{line}: {len(cells)} fields, but the header has {wanted}")
        self.cells.append(cells[self.indexed :])
        self.lines.append(line)

    @classmethod
    def _of_header(cls, path: Path, cells: list[str], line: int) -> CsvTable:
        indexed = len(cells) > 1 and not cells[0]
        names = cells[indexed:]
        seen: set[str] = set()
        for number, name in enumerate(names, start=1 + indexed):
            if number_in(name) is not None:
                cause = f"no header: {name!r} is a number, but the first line must name the columns"
            elif not name:
                cause = f"column {number} has no name"
            elif name in seen:
                cause = f"two columns are called {name!r}"
            else:
                seen.add(name)
                continue
            raise InputError(f"{path}:{line}: {cause}")
        return cls(path, names, indexed=indexed)

    def column(self, name: str) -> int:
        """Return the index of a column. Raises InputError that lists the columns."""
        if name not in self._places:
            some = ", ".join(self.names[:6]) + (", …" if len(self.names) > 6 else "")
            raise InputError(f"{self.path}: no column {name!r}; there are {some or 'none'}")
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def features(self, names: Sequence[str]) -> Float64:
        """Return columns as numbers; false and true are 0 and 1. Raises InputError with line and column."""
        picked = [self.column(name) for name in names]
        try:
            found = np.array([[_plain(row[k]) for k in picked] for row in self.cells], dtype=np.float64)
        except ValueError:
            found = np.array([])
        if found.size == len(self.cells) * len(picked) and np.isfinite(found).all():
            return found.reshape(len(self.cells), len(picked))
        raise InputError(self._first_bad(picked))

    def labels(self, name: str) -> Labels:
        """Return a column that has only numbers, or only words. Raises InputError with line and column."""
        k = self.column(name)
        cells = [row[k] for row in self.cells]
        if cells and all(cells) and not any(number_in(cell) is not None for cell in cells):
            return np.array(cells)
        return self.features([name])[:, 0]

    def _first_bad(self, picked: Sequence[int]) -> str:
        for row, line in zip(self.cells, self.lines, strict=True):
            for k in picked:
                value = number_in(_plain(row[k]))
                if value is None or not math.isfinite(value):
                    what = f"{row[k][:20]!r} is not a {'' if value is None else 'finite '}number"
                    what = what if row[k] else "is empty"
                    return f"{self.path}:{line}: column {self.names[k]!r}: {what}"
        raise AssertionError("some cell is bad")


def _plain(cell: str) -> str:
    """Return a cell as text for float(), if it is a number or a boolean."""
    return _BOOLEANS.get(cell.lower(), cell)


def _delimiter(text: str) -> tuple[str, int]:
    """Return the delimiter of the first record, and the number of lines before that record.

    Excel may write ``sep=;`` as the first line; otherwise the delimiter is the one that gives the most fields.
    """
    first = text.partition("\n")[0].rstrip("\r")
    if len(first) == 5 and first.lower().startswith("sep="):
        return first[4], 1

    def fields(delimiter: str) -> int:
        try:
            reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
            return len(next((row for row in reader if any(cell.strip() for cell in row)), []))
        except csv.Error:
            return 0

    return max(_DELIMITERS, key=fields), 0


def read_npz(path: Path) -> tuple[Float64, Labels | None]:
    """Return features, one sample per row (more dimensions are flattened), and labels if there are any.

    Raises InputError and FileNotFoundError.
    """
    try:
        arrays = read_archive(path, {name for pair in _PAIRS for name in pair})
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    pair = next((pair for pair in _PAIRS if pair[0] in arrays), None)
    if pair is None:
        wanted = " or ".join(" and ".join(pair) for pair in _PAIRS[:2])
        raise InputError(f"{path}: has {member_names(path)}, but not {wanted}")
    features, labels = arrays[pair[0]], arrays.get(pair[1])
    if features.ndim < 2:
        raise InputError(f"{path}: {pair[0]} must have a row for each sample, not shape {features.shape}")
    if labels is not None and labels.shape != (len(features),):
        raise InputError(f"{path}: {len(features)} samples, but {pair[1]} of shape {labels.shape}")
    numbers = _numbers(path, pair[0], features).reshape(len(features), math.prod(features.shape[1:]))
    if labels is None or labels.dtype.kind == "U":
        return numbers, labels
    return numbers, _numbers(path, pair[1], labels)


def _numbers(path: Path, name: str, array: npt.NDArray[Any]) -> Float64:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: {name} are {array.dtype}, not numbers")
    found = array.astype(np.float64)
    for place in np.argwhere(~np.isfinite(found))[:1].tolist():
        value = found[tuple(place)]
        raise InputError(f"{path}: {name}[{', '.join(map(str, place))}] is {value:g}, not a finite number")
    return found
