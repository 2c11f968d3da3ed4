"""NumPy's files of others: read with whatever may be wrong with them in one kind of error."""

from __future__ import annotations

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

#: What NumPy, zipfile and its codecs raise. RuntimeError: an array is encrypted, or packed in a way that
#: is not known here; TokenError: its header is no Python.
_DAMAGE = (
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)
_MAGIC = b"\x93NUMPY"
_SHOWN = 8  # names of a message
_MOST_EMPTY = 1 << 24  # of a dimension of an array without elements

#: What a compressed file may become: so many times its size, or so many bytes. More is taken for an attack.
MOST_TIMES, MOST_BYTES = 100, 256 << 20


def most_unpacked(path: Path) -> int:
    """How many bytes a compressed file may become."""
    return max(MOST_BYTES, MOST_TIMES * path.stat().st_size)


def grows_too_much(path: Path) -> str:
    """The error for a compressed file that becomes more than :func:`most_unpacked`."""
    most = most_unpacked(path)
    return f"unpacks from {path.stat().st_size:,} to more than {most:,} bytes; unpack it if that is right"


def read_archive(path: Path, names: Container[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """The arrays in an ``.npz``, or those of ``names`` that are there; nothing else is unpacked.

    Raises OSError, and ValueError of one line for a file that is no archive, or is damaged, or has something
    else than arrays of numbers or texts, or unpacks to more than :func:`most_unpacked`.
    """
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # NumPy would take it for an array, or for a pickle
            raise ValueError("no NumPy archive, or one that was cut off")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                members = archive.zip.infolist()
                wanted = [each for each in members if names is None or _name(each) in names]
                fits = sum(each.file_size for each in wanted) <= most_unpacked(path)
                for each in wanted if fits else ():
                    _check_shape(archive.zip, each)
                found = {name: archive[name] for name in map(_name, wanted)} if fits else {}
        except _DAMAGE as error:
            cause = " ".join(str(error).split())
            if "allow_pickle" in cause:
                cause = "an array of Python objects; numbers, or texts by astype(str), are read"
            raise ValueError(f"no NumPy archive of numbers: {cause}") from error
    if not fits:
        raise ValueError(grows_too_much(path))
    if others := [name for name, values in found.items() if not isinstance(values, np.ndarray)]:
        raise ValueError(f"no NumPy archive of numbers: {others[0]} is no array")
    return found


def read_array(path: Path) -> npt.NDArray[Any]:
    """Return the array in an ``.npy``.

    Raises OSError, and ValueError of one line for a file that holds no array of numbers or texts, or fewer
    bytes than its header says.
    """
    with path.open("rb") as file:
        try:
            _check_header(file, path.name, path.stat().st_size)
            file.seek(0)
            found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except _DAMAGE as error:
            raise ValueError(f"no NumPy array of numbers: {' '.join(str(error).split())}") from error
    return found


def member_names(path: Path) -> str:
    """Return the first names of the arrays in an ``.npz`` that :func:`read_archive` has read, for a message."""
    with zipfile.ZipFile(path) as archive:
        names = list(map(_name, archive.infolist()))
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more]) or "nothing"


def _check_shape(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError for an array whose header says more elements than the member has bytes."""
    with archive.open(member.filename) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return  # NumPy gives it as bytes
        file.seek(0)
        _check_header(file, member.filename, member.file_size)


def _check_header(file: IO[bytes], name: str, size: int) -> None:
    """Raise ValueError for an array whose header says more elements than its ``size`` bytes have room for.

    Elements and rows of no size would take memory that the file's size does not bound.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    elements = math.prod(shape)
    fits = elements * max(kind.itemsize, 1) <= size if elements else max(shape, default=0) <= _MOST_EMPTY
    if not fits and not kind.hasobject:
        raise ValueError(f"{name}: has no {shape} elements of {kind}")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
