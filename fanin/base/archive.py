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
_MAX_HEADER_BYTES = 1 << 16  # bytes; NumPy reads 10,000
_MAX_LISTED_NAMES = 8  # maximum number of names in a message
_MAX_EMPTY_DIMENSION = 1 << 24  # maximum dimension of an array without elements

#: Limits of unpacked size: a multiple of the file's size, and a number of bytes. The larger limit applies.
MAX_GROWTH, MAX_UNPACKED_BYTES = 100, 256 << 20


def max_unpacked_bytes(path: Path) -> int:
    """Return the maximum unpacked size of a compressed file, in bytes."""
    return max(MAX_UNPACKED_BYTES, MAX_GROWTH * path.stat().st_size)


def growth_error(path: Path) -> str:
    """Return the error text for a compressed file that unpacks to more than :func:`max_unpacked_bytes`."""
    maximum = max_unpacked_bytes(path)
    return f"unpacks from {path.stat().st_size:,} to more than {maximum:,} bytes; unpack it if that is right"


def read_archive(path: Path, names: Container[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in an ``.npz``; with ``names``, unpack only arrays of these names.

    Raises OSError, and ValueError of one line for

    - a file that is no archive, or is damaged;
    - content other than arrays of numbers or text;
    - an archive that unpacks to more than :func:`max_unpacked_bytes`.
    """
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("no NumPy archive, or one that was cut off")
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, names, path.stat().st_size)
                if is_small := sum(member.file_size for member in members.values()) <= max_unpacked_bytes(path):
                    arrays = {name: _read_member(archive, member, name) for name, member in members.items()}
        except DAMAGE as error:
            raise ValueError(f"no NumPy archive of numbers: {_cause(error)}") from error
    if not is_small:
        raise ValueError(growth_error(path))
    return arrays


def read_array(path: Path) -> npt.NDArray[Any]:
    """Return the array in an ``.npy``.

    Raises OSError, and ValueError of one line for a file without an array of numbers or text, or with fewer
    bytes than its header declares.
    """
    with path.open("rb") as file:
        try:
            _check_header(file, path.name, path.stat().st_size)
            return _read_elements(file)
        except DAMAGE as error:
            raise ValueError(f"no NumPy array of numbers: {_cause(error)}") from error


def member_names(path: Path) -> str:
    """Return the first names of the arrays in an ``.npz`` that :func:`read_archive` has read, for a message."""
    with zipfile.ZipFile(path) as archive:
        names = list(map(_name, archive.infolist()))
    rest = [f"and {len(names) - _MAX_LISTED_NAMES:,} more"] if len(names) > _MAX_LISTED_NAMES else []
    return ", ".join([*names[:_MAX_LISTED_NAMES], *rest]) or "nothing"


def _members(archive: zipfile.ZipFile, names: Container[str] | None, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's members, only those in ``names`` unless it is None. ``size``: of the file, in bytes.

    Raises ValueError for

    - a duplicate name, or overlapping members: each would be unpacked;
    - a packing other than stored and deflate. zipfile sets no limit for bzip2 and LZMA: one step may unpack
      gigabytes from a member that declares a few bytes.
    """
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = _name(member)
        if names is not None and name not in names:
            continue
        if name in members:
            raise ValueError(f"two arrays are called {name!r}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is packed in another way than numpy.savez_compressed packs")
        members[name] = member
    if sum(member.compress_size for member in members.values()) > size:
        raise ValueError("its arrays overlap")
    return members


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> npt.NDArray[Any]:
    with archive.open(member.filename) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{name} is no array")
        file.seek(0)
        _check_header(file, member.filename, member.file_size)
        return _read_elements(file)


def _read_elements(file: IO[bytes]) -> npt.NDArray[Any]:
    """Return the array of a file with a checked header. NumPy reads the elements in small parts."""
    file.seek(0)
    array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _cause(error: Exception) -> str:
    cause = " ".join(str(error).split())
    if "allow_pickle" in cause:
        return "an array of Python objects; numbers, or texts by astype(str), are read"
    return cause


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, type and size of the header of an ``.npy``. Raises one of ``DAMAGE``.

    A header may declare a length of 4 GiB; at most ``_MAX_HEADER_BYTES`` bytes are read.
    """
    head = io.BytesIO(file.read(_MAX_HEADER_BYTES))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return *read(head), head.tell()


def _check_header(file: IO[bytes], name: str, size: int) -> None:
    """Raise ValueError for an array whose header declares more elements than ``size`` bytes can hold.

    The file's size does not bound elements of size 0 and empty dimensions, so they have limits of their own.
    """
    shape, _, kind, _ = npy_header(file)
    elements = math.prod(shape)
    fits = (
        elements * max(kind.itemsize, 1) <= size if elements else max(shape, default=0) <= _MAX_EMPTY_DIMENSION
    )
    if not fits and not kind.hasobject:
        raise ValueError(f"{name}: has no {shape} elements of {kind}")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
