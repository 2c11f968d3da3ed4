"""Reader of LIBSVM files by scikit-learn's loader, with line and cause of errors."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from scipy import sparse
from sklearn import datasets

from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Float64
from fanin.sim.glm.files import READ_ERRORS, number_in, open_bytes

#: Maximum bytes of a line. The loader takes up to 30 bytes of memory per byte of a line.
MAX_LINE_BYTES = 16 << 20
_MAX_DIGITS = 20  # in a feature's index


def read_libsvm(path: Path, first: int | None = None) -> tuple[sparse.csr_matrix, Float64, int]:
    """Return features, labels, and the index of the first feature: 0 or 1.

    ``first``: that index, for a file that belongs to an earlier one; by default 0 if the file has an index 0,
    else 1. The file may be compressed. Raises InputError and FileNotFoundError.
    """
    try:
        with open_bytes(path) as file:
            features, labels = datasets.load_svmlight_file(_Lines(file, path), zero_based=True)
    except FileNotFoundError:
        raise
    except (*READ_ERRORS, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (ValueError, OverflowError) as error:
        raise InputError(_first_bad_line(path) or f"{path}: not LIBSVM: {error}") from error
    if not (np.isfinite(features.data).all() and np.isfinite(labels).all()):
        raise InputError(_first_bad_line(path) or f"{path}: has NaN or infinite values")
    min_index = int(features.indices.min(initial=1))
    if first is None:
        first = min(min_index, 1)
    elif min_index < first:
        raise InputError(f"{path}: has feature 0, but the features of the training file begin at 1")
    if first == 1 and features.shape[1]:
        features.indices -= 1  # in place, since a slice would copy a large set
        parts = features.data, features.indices, features.indptr
        features = sparse.csr_matrix(parts, shape=(features.shape[0], features.shape[1] - 1))
    return features, labels, first


class _Lines:
    """Lines of a LIBSVM file, as a file for the loader.

    Iteration raises InputError for a line of more than ``MAX_LINE_BYTES``, and for numbers with underscores,
    which Python reads.
    """

    def __init__(self, file: IO[bytes], path: Path):
        self._file, self._path = file, path
        self.read = file.read  # the loader requires this method, and does not call it

    def __iter__(self) -> Iterator[bytes]:
        number = 0
        while line := self._file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InputError(f"{self._path}:{number}: has more than {MAX_LINE_BYTES:,} bytes in a line")
            if b"_" in line and (cause := _line_error(line)):
                raise InputError(f"{self._path}:{number}: {cause}")
            yield line


def _first_bad_line(path: Path) -> str | None:
    """Return the first bad line of a LIBSVM file and its error, which scikit-learn's loader does not name."""
    with open_bytes(path) as file:
        for number, line in enumerate(_Lines(file, path), start=1):
            cause = _line_error(line)
            if cause:
                return f"{path}:{number}: {cause}"
    return None


def _line_error(line: bytes) -> str | None:
    """Return the error of a line. The line is split as bytes: as text, it has more kinds of white space."""
    label, *pairs = (part.decode(errors="replace") for part in line.partition(b"#")[0].split() or [b"0"])
    value = number_in(label) if label.isascii() else None
    if value is None or not math.isfinite(value):
        cause = f"not LIBSVM: label {label[:20]!r} is not a {'finite ' if value is not None else ''}number"
        return f"{cause}; a table of commas needs .csv in its name, and a header" if "," in label else cause
    last_index = -1
    for place, pair in enumerate(pairs):
        index, colon, text = pair.partition(":")
        if index == "qid" and colon and place == 0:  # the loader ignores it, and only there
            continue
        value = number_in(text)
        if not colon or value is None or not (pair.isascii() and index.isdecimal()):
            return f"not LIBSVM: {pair[:20]!r} is not index:value"
        if not math.isfinite(value):
            return f"feature {index[:20]} is {text[:20]}, not a finite number"
        if len(index) > _MAX_DIGITS:
            return f"not LIBSVM: feature index {index[:20]}… has {len(index):,} digits"
        if int(index) <= last_index:
            return f"not LIBSVM: feature {index} follows {last_index}, but indices must increase"
        if int(index) > np.iinfo(np.int32).max:
            return f"not LIBSVM: feature index {index} exceeds 32 bits"
        last_index = int(index)
    return None
