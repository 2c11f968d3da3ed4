"""Files of raw binary32 values, read in pieces."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from fanin.errors import InputError
from fanin.golden.codec.file import FLOAT_BYTES, PIECE

Float32 = npt.NDArray[np.float32]


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

    Raises InputError as ``open_input``, or when the length is no multiple of a value's.
    """
    with open_input(path) as (file, size):
        if size % FLOAT_BYTES:
            raise InputError(f"{path}: has {size:,} bytes, which is no multiple of {FLOAT_BYTES}")
        count = size // FLOAT_BYTES
        with bar(count) as progress:
            yield _pieces(path, file, count, progress), count


def _pieces(path: Path, file: BinaryIO, count: int, progress: tqdm) -> Iterator[Float32]:
    for first in range(0, count, PIECE):
        length = min(PIECE, count - first)
        with naming(path):
            data = file.read(length * FLOAT_BYTES)
            if len(data) < length * FLOAT_BYTES:
                raise InputError("has become shorter while it was read")
        yield np.frombuffer(data, dtype="<f4")
        progress.update(length)


def bar(count: int) -> tqdm:
    """A bar of values, when stderr is a terminal."""
    return tqdm(total=count, unit=" values", unit_scale=True, leave=False, disable=not sys.stderr.isatty())
