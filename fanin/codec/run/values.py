"""Files of values, read in pieces: raw binary32, or NumPy's ``.npy``.

An ``.npy`` file is recognised by its first bytes, not by its name. Its type is float32, float16 (exact in
float32), or float64, which is rounded to the nearest float32, ties to even. Any other type is refused, and so
are arrays in Fortran order and finite float64 values outside the range of float32.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from fanin.base.archive import DAMAGE, npy_header
from fanin.base.errors import InputError
from fanin.base.printable import printable, terminal
from fanin.codec.golden.file import FLOAT_BYTES, MAGIC, PIECE_VALUES
from fanin.runs.progress import progress_bar

Float32 = npt.NDArray[np.float32]

# Far beyond any gradient, but likely if the bytes of other files are read as float32. In float64 files, for
# example, every second word has an arbitrary exponent, or a multiple of 2^61 of a few.
ABSURD = 1e15
_OTHER_KINDS = {
    b"PK\x03\x04": "is a zip archive (.npz, .pt): save the array itself, with numpy.save",
    MAGIC: "is compressed already: fanin codec decode gives its values",
}


@contextlib.contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Turn OSErrors, and InputErrors about contents, into InputErrors that name ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file; yield it and its size in bytes. Raises InputError if it is unreadable, special or empty."""
    with errors_naming(path):
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise InputError("is not a regular file")
        file = path.open("rb")
    with file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise InputError(f"{path}: is empty")
        yield file, size


@contextlib.contextmanager
def open_values(path: Path) -> Iterator[tuple[Iterator[Float32], int]]:
    """Yield the values of a file, ``PIECE_VALUES`` at a time, and their number; a bar shows the progress.

    After the last value a warning goes to stderr if some values are unlikely to be gradients. Raises InputError
    as ``open_input`` does, for a file of another kind, and if its length does not match its values.
    """
    with open_input(path) as (file, size):
        with errors_naming(path):
            layout = _layout(file, size)
        with bar(layout.count) as progress:
            yield _pieces(path, file, layout, progress), layout.count


@dataclass(frozen=True)
class _Layout:
    """Type and number of the values from a file's current position on."""

    dtype: np.dtype
    count: int


def _layout(file: BinaryIO, size: int) -> _Layout:
    """Read the header, if any. Raises InputError for content that is not values of a fitting type."""
    begin = file.read(len(np.lib.format.MAGIC_PREFIX))
    for magic, kind in _OTHER_KINDS.items():
        if begin.startswith(magic):
            raise InputError(kind)
    file.seek(0)
    if begin == np.lib.format.MAGIC_PREFIX:
        return _npy_layout(file, size)
    if size % FLOAT_BYTES:
        raise InputError(f"has {size:,} bytes, which is not a multiple of {FLOAT_BYTES}")
    return _Layout(np.dtype("<f4"), size // FLOAT_BYTES)


def _npy_layout(file: BinaryIO, size: int) -> _Layout:
    try:
        shape, fortran, dtype, header = npy_header(file)
    except DAMAGE as error:
        raise InputError(f"is not a complete .npy file: {' '.join(str(error).split())}") from error
    file.seek(header)
    if min(shape, default=0) < 0:
        raise InputError(f"is not a complete .npy file: its shape is {shape}")
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(f"holds values of type {dtype}, not float32: save array.astype(numpy.float32)")
    if fortran and len(shape) > 1:
        raise InputError("is in Fortran order: save numpy.ascontiguousarray(array)")
    count, remaining = prod(shape), size - file.tell()
    if not count:
        raise InputError("holds no values")
    if remaining != count * dtype.itemsize:
        raise InputError(
            f"has {remaining:,} bytes after its header, but {count:,} values of type {dtype} take "
            f"{count * dtype.itemsize:,}"
        )
    return _Layout(dtype, count)


def _pieces(path: Path, file: BinaryIO, layout: _Layout, progress: tqdm) -> Iterator[Float32]:
    absurd = 0
    for first in range(0, layout.count, PIECE_VALUES):
        length = min(PIECE_VALUES, layout.count - first)
        with errors_naming(path):
            data = file.read(length * layout.dtype.itemsize)
            if len(data) < length * layout.dtype.itemsize:
                raise InputError("was truncated while it was read")
            values = as_float32(np.frombuffer(data, layout.dtype), first)
        absurd += int(np.count_nonzero(~(np.abs(values) < ABSURD)))
        yield values
        progress.update(length)
    if absurd:
        share = f"{absurd:,} of {layout.count:,} values ({absurd / layout.count:.2%})"
        finding = f"are NaN, infinite or of magnitude {ABSURD:g} and more: most likely not float32 gradients"
        tqdm.write(printable(f"fanin: warning: {path}: {share} {finding}"), file=terminal())


def as_float32(values: np.ndarray, first: int = 0) -> Float32:
    """Convert values to float32; ``first`` is the number of the first. Raises InputError for one too large."""
    with np.errstate(over="ignore"):
        converted = values.astype("<f4", copy=False)
    if values.dtype.itemsize > FLOAT_BYTES:
        too_large = np.isinf(converted) & np.isfinite(values)
        if too_large.any():
            index = int(too_large.argmax())
            raise InputError(f"value {first + index:,} is {values[index]:g}, which float32 cannot hold")
    return converted


def bar(count: int) -> tqdm:
    """Return a progress bar for values, which is shown if stderr is a terminal."""
    return progress_bar(total=count, unit=" values", unit_scale=True)
