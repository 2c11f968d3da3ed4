"""NumPy archives of others: read with whatever may be wrong with them in one kind of error."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: What NumPy, zipfile and its codecs raise. RuntimeError: an array is encrypted, or packed in a way that
#: is not known here; MemoryError: its header says a shape that memory has no room for.
_DAMAGE = (ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


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


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
