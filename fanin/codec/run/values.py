"""Files of values, read in pieces: raw binary32, or NumPy's ``.npy``.

An ``.npy`` is known by its first bytes, not by its name. It holds float32, float16 (exact in float32), or
float64, which is rounded to the nearest float32, ties to even. Any other type is refused, as are arrays in
Fortran's order and finite float64 values that no float32 holds.
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

from fanin.base.errors import InputError
from fanin.base.printable import printable, terminal
from fanin.codec.golden.file import FLOAT_BYTES, MAGIC, PIECE
from fanin.runs.progress import progress_bar

Float32 = npt.NDArray[np.float32]

# Far beyond any gradient, and within reach of what other files hold when their bytes are read as float32: of
# float64 values, for example, every second word has any exponent at all, or a multiple of 2^61 of a few.
ABSURD = 1e15
_OTHER_KINDS = {
    b"PK\x03\x04": "is a zip archive (.npz, .pt): save the array itself, with numpy.save",
    MAGIC: "is compressed already: fanin codec decode gives its values",
}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """What the system refuses, and complaints about contents, become InputErrors that name ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A file and its size in bytes. Raises InputError unless it can be read, is regular and not empty."""
    with naming(path):
        if path.exists() and not path.is_file():  # a pipe would not even open
            raise InputError("is no regular file")
        file = path.open("rb")
    with file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise InputError(f"{path}: is empty")
        yield file, size


@contextlib.contextmanager
def open_values(path: Path) -> Iterator[tuple[Iterator[Float32], int]]:
    """The values of a file, ``PIECE`` at a time, and their number; a bar shows how far it is.

    After the last value a warning goes to stderr if some can hardly be gradients. Raises InputError as
    ``open_input``, for a file of another kind, and when its length is not that of its values.
    """
    with open_input(path) as (file, size):
        with naming(path):
            layout = _layout(file, size)
        with bar(layout.count) as progress:
            yield _pieces(path, file, layout, progress), layout.count


@dataclass(frozen=True)
class _Layout:
    """What a file holds from its present position on."""

    dtype: np.dtype
    count: int


def _layout(file: BinaryIO, size: int) -> _Layout:
    """Read the header, if there is one. Raises InputError for what holds no values of a fitting type."""
    begin = file.read(len(np.lib.format.MAGIC_PREFIX))
    for magic, kind in _OTHER_KINDS.items():
        if begin.startswith(magic):
            raise InputError(kind)
    file.seek(0)
    if begin == np.lib.format.MAGIC_PREFIX:
        return _npy_layout(file, size)
    if size % FLOAT_BYTES:
        raise InputError(f"has {size:,} bytes, which is no multiple of {FLOAT_BYTES}")
    return _Layout(np.dtype("<f4"), size // FLOAT_BYTES)


def _npy_layout(file: BinaryIO, size: int) -> _Layout:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise InputError(f"is no whole .npy: {error}") from error
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(f"holds values of type {dtype}, not float32: save array.astype(numpy.float32)")
    if fortran and len(shape) > 1:
        raise InputError("is in Fortran's order: save numpy.ascontiguousarray(array)")
    count, rest = prod(shape), size - file.tell()
    if not count:
        raise InputError("holds no values")
    if rest != count * dtype.itemsize:
        raise InputError(
            f"has {rest:,} bytes behind its header, but {count:,} values of type {dtype} take "
            f"{count * dtype.itemsize:,}"
        )
    return _Layout(dtype, count)


def _pieces(path: Path, file: BinaryIO, layout: _Layout, progress: tqdm) -> Iterator[Float32]:
    absurd = 0
    for first in range(0, layout.count, PIECE):
        length = min(PIECE, layout.count - first)
        with naming(path):
            data = file.read(length * layout.dtype.itemsize)
            if len(data) < length * layout.dtype.itemsize:
                raise InputError("has become shorter while it was read")
            values = as_float32(np.frombuffer(data, layout.dtype), first)
        absurd += int(np.count_nonzero(~(np.abs(values) < ABSURD)))
        yield values
        progress.update(length)
    if absurd:
        share = f"{absurd:,} of {layout.count:,} values ({absurd / layout.count:.2%})"
        what = f"are NaN, infinite or of magnitude {ABSURD:g} and more: most likely no float32 gradients"
        tqdm.write(printable(f"fanin: warning: {path}: {share} {what}"), file=terminal())


def as_float32(values: np.ndarray, first: int = 0) -> Float32:
    """Values as float32; ``first`` is the first one's number. Raises InputError for one that is too large."""
    with np.errstate(over="ignore"):
        converted = values.astype("<f4", copy=False)
    if values.dtype.itemsize > FLOAT_BYTES:
        beyond = np.isinf(converted) & np.isfinite(values)
        if beyond.any():
            index = int(beyond.argmax())
            raise InputError(f"value {first + index:,} is {values[index]:g}, which no float32 holds")
    return converted


def bar(count: int) -> tqdm:
    """A bar of values, when stderr is a terminal."""
    return progress_bar(total=count, unit=" values", unit_scale=True)
