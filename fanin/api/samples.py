"""Samples in memory (arrays, sparse matrices, DataFrames), written as a file that a run can read again."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fanin.base.errors import InputError
from fanin.base.scratch import write_file

if TYPE_CHECKING:  # not needed by every function
    import numpy as np
    import numpy.typing as npt

Samples: TypeAlias = Any  #: array, sparse matrix, or DataFrame of pandas or polars; labels: an array or Series
LABEL = "label"  #: column of labels without a name of their own, beside a DataFrame


def has_samples(data: object) -> bool:
    """Return whether ``data`` holds samples; else it should name a file or a bundled set."""
    is_name = isinstance(data, str | os.PathLike)
    return not is_name and (hasattr(data, "shape") or hasattr(data, "__len__"))


def write_samples(data: Samples, labels: Samples, output: Path) -> Path:
    """Write samples beside the folder ``output``, exactly; return the file. Raises InputError.

    - ``data``: a DataFrame becomes a CSV file with its names, an array or sparse matrix an ``.npz``.
    - ``labels``: a label per sample; None: a column of the DataFrame has them.
    """
    is_frame = hasattr(data, "columns") and hasattr(data, "to_numpy")
    path = output.with_name(f"{output.name}-data{'.csv' if is_frame else '.npz'}")
    content = _csv(data, labels) if is_frame else _npz(data, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)
    return path


def _npz(data: Any, labels: Any) -> bytes:
    import numpy as np
    from scipy import sparse

    if labels is None:
        raise InputError("labels: an array of samples needs one label per sample")
    if sparse.issparse(data):
        features = sparse.csr_matrix(data)
        members = {name: getattr(features, name) for name in ("data", "indices", "indptr")}
        members["shape"] = np.array(features.shape)
    else:
        features = _array("data", data)
        members = {"features": features}
    names = _words(_array("labels", labels))
    if names.shape != (features.shape[0],):
        raise InputError(f"labels must be one per sample, {features.shape[0]:,}, not of shape {names.shape}")
    buffer = io.BytesIO()
    np.savez(buffer, labels=names, **members)
    return buffer.getvalue()


def _csv(frame: Any, labels: Any) -> str:
    import numpy as np

    columns = {str(name): np.asarray(frame[name]) for name in frame.columns}
    if labels is not None:
        name = str(getattr(labels, "name", None) or LABEL)
        if name in columns:
            raise InputError(f"labels: the DataFrame has a column {name!r}, too")
        columns[name] = _array("labels", labels)
        if columns[name].shape != (len(frame),):
            raise InputError(
                f"labels must be one per sample, {len(frame):,}, not of shape {columns[name].shape}"
            )
    _check_columns(columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return text.getvalue()


def _check_columns(columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise InputError for a missing value. Words in a feature's column are refused when the file is read."""
    import numpy as np

    for name, column in columns.items():
        is_missing = column != column if column.dtype.kind in "fO" else np.zeros(len(column), dtype=bool)
        for row in np.flatnonzero(np.array([value is None for value in column.tolist()]) | is_missing)[:1]:
            raise InputError(
                f"column {name!r}: the value of sample {row} is missing; fill it first, as "
                "sklearn.impute.SimpleImputer does"
            )


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: no array: {error}") from error


def _words(labels: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return labels of Python's texts as NumPy's, since an ``.npz`` has no objects."""
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.tolist())
    return labels.astype(str) if is_text else labels
