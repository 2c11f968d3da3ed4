"""Readers of untrusted NumPy files; every defect raises ValueError."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

#: Errors of NumPy, zipfile and its codecs for a bad file. RuntimeError: an encrypted array, or an unknown
#: packing; TokenError: a header that is no Python.
DAMAGE = (
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
_MAGIC = b"\x93NUMPY"
_MOST_HEADER = 1 << 16  # bytes; NumPy reads 10,000
_SHOWN = 8  # maximum number of names in a message
_MOST_EMPTY = 1 << 24  # maximum dimension of an array without elements

#: Limits of unpacked size, of which the larger applies: a multiple of the file's size, and a number of bytes.
MOST_TIMES, MOST_BYTES = 100, 256 << 20


def most_unpacked(path: Path) -> int:
    """Return the maximum unpacked size of a compressed file, in bytes."""
    return max(MOST_BYTES, MOST_TIMES * path.stat().st_size)


def grows_too_much(path: Path) -> str:
    """Return the error text for a compressed file that unpacks to more than :func:`most_unpacked`."""
    most = most_unpacked(path)
    return f"unpacks from {path.stat().st_size:,} to more than {most:,} bytes; unpack it if that is right"


def read_archive(path: Path, names: Container[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an ``.npz``; with ``names``, unpack only arrays of these names.

    Raises OSError, and ValueError of one line for

    - a file that is no archive, or is damaged;
    - content other than arrays of numbers or text;
    - an archive that unpacks to more than :func:`most_unpacked`.
    """
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("no NumPy archive, or one that was cut off")
        try:
            with zipfile.ZipFile(file) as archive:
                wanted = _wanted(archive, names, path.stat().st_size)
                if fits := sum(each.file_size for each in wanted.values()) <= most_unpacked(path):
                    found = {name: _array(archive, each, name) for name, each in wanted.items()}
        except DAMAGE as error:
            raise ValueError(f"no NumPy archive of numbers: {_cause(error)}") from error
    if not fits:
        raise ValueError(grows_too_much(path))
    return found


def read_array(path: Path) -> npt.NDArray[Any]:
    """Return the array in an ``.npy``.

    Raises OSError, and ValueError of one line for a file without an array of numbers or text, or with fewer
    bytes than its header declares.
    """
    with path.open("rb") as file:
        try:
            _check_header(file, path.name, path.stat().st_size)
            return _content(file)
        except DAMAGE as error:
            raise ValueError(f"no NumPy array of numbers: {_cause(error)}") from error


def member_names(path: Path) -> str:
    """Return the first names of the arrays in an ``.npz`` that :func:`read_archive` has read, for a message."""
    with zipfile.ZipFile(path) as archive:
        names = list(map(_name, archive.infolist()))
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more]) or "nothing"


def _wanted(archive: zipfile.ZipFile, names: Container[str] | None, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members of ``names``, or all members, by name. The file has ``size`` bytes.

    Raises ValueError for

    - a duplicate name, or overlapping members: each would be unpacked;
    - a packing other than stored and deflate. zipfile sets no limit for bzip2 and LZMA: one step may unpack
      gigabytes from a member that declares a few bytes.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = _name(member)
        if names is not None and name not in names:
            continue
        if name in found:
            raise ValueError(f"two arrays are called {name!r}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is packed in another way than numpy.savez_compressed packs")
        found[name] = member
    if sum(member.compress_size for member in found.values()) > size:
        raise ValueError("its arrays overlap")
    return found


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> npt.NDArray[Any]:
    with archive.open(member.filename) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{name} is no array")
        file.seek(0)
        _check_header(file, member.filename, member.file_size)
        return _content(file)


def _content(file: IO[bytes]) -> npt.NDArray[Any]:
    """Return the array of a file with a checked header. NumPy reads the elements in small pieces."""
    file.seek(0)
    found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _cause(error: Exception) -> str:
    cause = " ".join(str(error).split())
    if "allow_pickle" in cause:
        return "an array of Python objects; numbers, or texts by astype(str), are read"
    return cause


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, type and size of the header of an ``.npy``. Raises one of ``DAMAGE``.

    A header may declare a length of 4 GiB; at most ``_MOST_HEADER`` bytes are read.
    """
    head = io.BytesIO(file.read(_MOST_HEADER))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return *read(head), head.tell()


def _check_header(file: IO[bytes], name: str, size: int) -> None:
    """Raise ValueError for an array whose header declares more elements than ``size`` bytes can hold.

    The file's size does not bound elements of size 0 and empty dimensions, so they have limits of their own.
    """
    shape, _, kind, _ = npy_header(file)
    elements = math.prod(shape)
    fits = elements * max(kind.itemsize, 1) <= size if elements else max(shape, default=0) <= _MOST_EMPTY
    if not fits and not kind.hasobject:
        raise ValueError(f"{name}: has no {shape} elements of {kind}")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
