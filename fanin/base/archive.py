"""NumPy's files of others: read with whatever may be wrong with them in one kind of error."""

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

#: What NumPy, zipfile and its codecs raise. RuntimeError: an array is encrypted, or packed in a way that
#: is not known here; TokenError: its header is no Python.
_DAMAGE = (
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
        if not zipfile.is_zipfile(file):
            raise ValueError("no NumPy archive, or one that was cut off")
        try:
            with zipfile.ZipFile(file) as archive:
                wanted = _wanted(archive, names, path.stat().st_size)
                if fits := sum(each.file_size for each in wanted.values()) <= most_unpacked(path):
                    found = {name: _array(archive, each, name) for name, each in wanted.items()}
        except _DAMAGE as error:
            raise ValueError(f"no NumPy archive of numbers: {_cause(error)}") from error
    if not fits:
        raise ValueError(grows_too_much(path))
    return found


def read_array(path: Path) -> npt.NDArray[Any]:
    """Return the array in an ``.npy``.

    Raises OSError, and ValueError of one line for a file that holds no array of numbers or texts, or fewer
    bytes than its header says.
    """
    with path.open("rb") as file:
        try:
            _check_header(file, path.name, path.stat().st_size)
            return _content(file)
        except _DAMAGE as error:
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

    - a name that occurs twice, and members that overlap: each would be unpacked;
    - a packing whose steps have no bound. zipfile gives bzip2 and LZMA no limit, so that one step may unpack
      gigabytes of a member that declares a few bytes.
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
    """Return the array of a file whose header has been checked. NumPy reads its elements in small pieces."""
    file.seek(0)
    found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _cause(error: Exception) -> str:
    cause = " ".join(str(error).split())
    if "allow_pickle" in cause:
        return "an array of Python objects; numbers, or texts by astype(str), are read"
    return cause


def _check_header(file: IO[bytes], name: str, size: int) -> None:
    """Raise ValueError for an array whose header says more elements than its ``size`` bytes have room for.

    Elements and rows of no size would take memory that the file's size does not bound. A header itself may
    declare 4 GiB; no more than ``_MOST_HEADER`` are read.
    """
    head = io.BytesIO(file.read(_MOST_HEADER))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(head)
    elements = math.prod(shape)
    fits = elements * max(kind.itemsize, 1) <= size if elements else max(shape, default=0) <= _MOST_EMPTY
    if not fits and not kind.hasobject:
        raise ValueError(f"{name}: has no {shape} elements of {kind}")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
