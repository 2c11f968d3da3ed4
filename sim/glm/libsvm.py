"""Reader of LIBSVM files by scikit-learn's loader, block by block, with line and cause of errors."""

from __future__ import annotations

import io
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn import datasets

from fanin.base.errors import InputError
from fanin.glm.golden.csr import CsrBuilder, GrowingArray
from fanin.glm.golden.quantise import Float64
from fanin.sim.glm.files import READ_ERRORS, number_in, open_bytes

#: Maximum bytes of a line. The loader takes up to 30 bytes of memory per byte of a line.
MAX_LINE_BYTES = 16 << 20
BLOCK_BYTES = 1 << 22  # of a file's text that are read at once
_MAX_DIGITS = 20  # in a feature's index
_FOR_PYTHON_ALONE = re.compile(rb"_|[+-][0-9]+:")  # numbers with underscores, indices with signs


def read_libsvm(path: Path, first: int | None = None) -> tuple[sparse.csr_matrix, Float64, int]:
    """Return features, labels, and the index of the first feature: 0 or 1.

    ``first``: that index, for a file that belongs to an earlier one; by default 0 if the file has an index 0,
    else 1. The file may be compressed. Memory holds the result and ``BLOCK_BYTES`` of the file's text, or its
    longest line. Raises InputError and FileNotFoundError.
    """
    builder, labels = CsrBuilder(np.float64), GrowingArray(np.float64)
    least, most = 1, 0
    for features, targets in _blocks(path):
        builder.append(features)
        labels.append(targets)
        if features.nnz:
            least, most = min(least, int(features.indices.min())), max(most, int(features.indices.max()))
    if first is None:
        first = least
    elif least < first:
        raise InputError(f"{path}: has feature 0, but the features of the training file begin at 1")
    result = builder.finish(most + 1)
    if first == 1:
        result.indices -= 1  # in place, since a slice would copy a large set
        parts = result.data, result.indices, result.indptr
        result = sparse.csr_matrix(parts, shape=(result.shape[0], most))
    return result, labels.finish(), first


def _blocks(path: Path) -> Iterator[tuple[sparse.csr_matrix, Float64]]:
    """Yield features and labels of some lines at a time; features are numbered from index 0.

    Raises InputError and FileNotFoundError.
    """
    line = 1
    try:
        with open_bytes(path) as file:
            while text := file.read(BLOCK_BYTES):
                text += file.readline(MAX_LINE_BYTES + 1)
                _check_last_line(path, text, line)
                yield _parse(path, text, line)
                line += text.count(b"\n")
    except FileNotFoundError:
        raise
    except (*READ_ERRORS, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _parse(path: Path, text: bytes, first_line: int) -> tuple[sparse.csr_matrix, Float64]:
    """Return features and labels of whole lines. Raises InputError that names the line.

    Numbers with underscores and indices with signs, which the loader takes, are errors.
    """
    if _FOR_PYTHON_ALONE.search(text) and (error := _first_bad_line(path, text, first_line)):
        raise InputError(error)
    try:
        features, labels = datasets.load_svmlight_file(io.BytesIO(text), zero_based=True)
    except (ValueError, OverflowError) as error:
        raise InputError(_first_bad_line(path, text, first_line) or f"{path}: not LIBSVM: {error}") from error
    if not (np.isfinite(features.data).all() and np.isfinite(labels).all()):
        raise InputError(_first_bad_line(path, text, first_line) or f"{path}: has NaN or infinite values")
    return features, labels


def _check_last_line(path: Path, text: bytes, first_line: int) -> None:
    """Raise InputError if the last line of a text has more than ``MAX_LINE_BYTES``; no other can."""
    begin = text.rfind(b"\n", 0, len(text) - 1) + 1
    if len(text) - begin > MAX_LINE_BYTES:
        number = first_line + text.count(b"\n", 0, begin)
        raise InputError(f"{path}:{number}: has more than {MAX_LINE_BYTES:,} bytes in a line")


def _first_bad_line(path: Path, text: bytes, first_line: int) -> str | None:
    """Return the first bad line of a text and its error, which scikit-learn's loader does not name."""
    for number, line in enumerate(io.BytesIO(text), start=first_line):
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
