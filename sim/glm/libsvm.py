"""Reader of LIBSVM files by scikit-learn's loader, with line and cause of errors."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn import datasets

from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Float64
from fanin.sim.glm.files import READ_ERRORS, number_in, open_bytes

_MAX_DIGITS = 20  # in a feature's index


def read_libsvm(path: Path, first: int | None = None) -> tuple[sparse.csr_matrix, Float64, int]:
    """Return features, labels, and the index of the first feature: 0 or 1.

    ``first``: that index, for a file that belongs to an earlier one; by default 0 if the file has an index 0,
    else 1. The file may be compressed. Raises InputError and FileNotFoundError.
    """
    try:
        with open_bytes(path) as file:
            features, labels = datasets.load_svmlight_file(file, zero_based=True)
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


def _first_bad_line(path: Path) -> str | None:
    """Return the first bad line of a LIBSVM file and its error, which scikit-learn's loader does not name."""
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, start=1):
            cause = _line_error(line.decode(errors="replace"))
            if cause:
                return f"{path}:{number}: {cause}"
    return None


def _line_error(line: str) -> str | None:
    label, *pairs = line.partition("#")[0].split() or ["0"]
    value = number_in(label)
    if value is None or not math.isfinite(value):
        cause = f"not LIBSVM: label {label[:20]!r} is not a {'finite ' if value is not None else ''}number"
        return f"{cause}; a table of commas needs .csv in its name, and a header" if "," in label else cause
    last_index = -1
    for pair in pairs:
        index, colon, text = pair.partition(":")
        value = number_in(text)
        if not colon or value is None or not (index.isdecimal() or index == "qid"):
            return f"not LIBSVM: {pair[:20]!r} is not index:value"
        if index == "qid":
            continue
        if not math.isfinite(value):
            return f"feature {index} is {text}, not a finite number"
        if len(index) > _MAX_DIGITS:
            return f"not LIBSVM: feature index {index[:20]}… has {len(index):,} digits"
        if int(index) <= last_index:
            return f"not LIBSVM: feature {index} follows {last_index}, but indices must increase"
        if int(index) > np.iinfo(np.int32).max:
            return f"not LIBSVM: feature index {index} exceeds 32 bits"
        last_index = int(index)
    return None
