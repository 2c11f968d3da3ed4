"""Functions shared by the readers of files: compressed files, kinds by name, numbers."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fanin.base.archive import growth_error, max_unpacked_bytes
from fanin.base.errors import InputError

#: First bytes of a compressed file, and the function that opens it.
_OPENERS: dict[bytes, Callable[[Path, str], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_PACKED = {b"\x28\xb5\x2f\xfd": "Zstandard", b"PK\x03\x04": "zip", b"7z\xbc\xaf\x27\x1c": "7-Zip"}
#: First bytes of unsupported formats that hold tables, and a way to convert them.
_UNREAD = {
    b"\x93NUMPY": "NumPy's .npy; numpy.savez(FILE, features=…, labels=…) makes an .npz",
    b"PAR1": "Parquet; pandas' to_csv(index=False) makes a CSV",
    b"\x89HDF": "HDF5; store features and labels by numpy.savez",
}
_SUFFIXES = (".gz", ".bz2", ".xz")
#: Errors raised for an unreadable or damaged file.
READ_ERRORS = (OSError, EOFError, lzma.LZMAError)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file; unpack it if its first bytes are those of gzip, bzip2 or xz.

    Raises OSError, and InputError for an unsupported compression. Reading raises InputError when the content is
    larger than :func:`fanin.base.archive.max_unpacked_bytes` allows.
    """
    with open(path, "rb") as file:
        start = file.read(8)
    for magic, name in _PACKED.items():
        if start.startswith(magic):
            raise InputError(f"{path}: a file of {name}; unpack it, or pack it with gzip, bzip2 or xz")
    for magic, advice in _UNREAD.items():
        if start.startswith(magic):
            raise InputError(f"{path}: a file of {advice}")
    opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
    return open(path, "rb") if opener is None else io.BufferedReader(_Bounded(opener(path, "rb"), path))


class _Bounded(io.RawIOBase):
    """Content of ``unpacked``, limited by the size of the compressed file ``path``."""

    def __init__(self, unpacked: io.BufferedIOBase, path: Path):
        self._unpacked, self._path = unpacked, path
        self._remaining = max_unpacked_bytes(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._unpacked.readinto(buffer)
        except MemoryError:  # xz: the header names a dictionary of up to 4 GiB
            raise InputError(f"{self._path}: takes more memory to unpack than is available") from None
        self._remaining -= count
        if self._remaining < 0:
            raise InputError(f"{self._path}: {growth_error(self._path)}")
        return count

    def close(self) -> None:
        self._unpacked.close()
        super().close()


def kind_of(path: Path) -> str:
    """Return the suffix that says what a file contains: ``.csv`` for ``data.csv.gz``."""
    return (path.with_suffix("") if path.suffix.lower() in _SUFFIXES else path).suffix.lower()


def number_in(text: str) -> float | None:
    """Return the number in a field; None if it is not a number. Python's underscores are no digits."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None
