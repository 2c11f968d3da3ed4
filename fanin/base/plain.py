"""Access to files and folders that another user may have written or replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

MAX_FILE_BYTES = 64 << 20  #: default maximum size of a file, in bytes
_PART_BYTES = 1 << 20  # bytes of a read from a file of unknown size
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_regular(path: Path | str, flags: int = 0, folder: int | None = None) -> BinaryIO:
    """Open a regular file to read it. Never waits. Raises OSError for a FIFO or a device.

    - ``flags``: additional flags of ``os.open``.
    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    return _open_checked(path, os.O_RDONLY | flags, folder, "rb")


def open_below(folder: Path, *names: str) -> BinaryIO:
    """Open a regular file below ``folder``, by the folders and the file's name. Never waits.

    Raises OSError for a link below ``folder``, also for one that has just replaced a folder.
    """
    *folders, last = names
    with folder_below(folder, *folders) as parent:
        return open_regular(last, os.O_NOFOLLOW, parent)


def append_plain(path: Path) -> BinaryIO:
    """Open a regular file to append to it. Never waits. Raises OSError for a link, a FIFO and a device."""
    return _open_checked(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, None, "ab")


def new_file(path: Path | str, folder: int | None = None) -> BinaryIO:
    """Create a file to write it; it replaces a file, a link or a FIFO, and the link's target stays.

    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666, dir_fd=folder), "wb")


@contextlib.contextmanager
def folder_below(folder: Path | int, *names: str, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder ``names`` below ``folder``. Paths relative to it stay in this folder.

    Raises OSError for a link below ``folder``, also for one that has just replaced a folder.

    - ``folder``: path, whose links are followed, or descriptor.
    - ``create``: True creates absent folders, and replaces links by folders.
    """
    descriptor = os.dup(folder) if isinstance(folder, int) else os.open(folder, _FOLDER)
    try:
        for name in names:
            if create:
                _make_folder(descriptor, name)
            outer, descriptor = descriptor, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(outer)  # in this order: an interrupt in between closes no descriptor twice
        yield descriptor
    finally:
        os.close(descriptor)


def mode_of(path: Path | str, folder: int | None = None) -> int:
    """Return the mode of a file, folder or link, which is not followed; 0 if it is absent or cannot be reached.

    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return 0


def read_plain(path: Path | str, max_bytes: int = MAX_FILE_BYTES, folder: int | None = None) -> bytes:
    """Return the content of a regular file of at most ``max_bytes`` bytes. Never waits.

    Raises OSError for a link, a FIFO, a device and a larger file. A link may lead to a file that only the
    caller can read.

    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    with open_regular(path, os.O_NOFOLLOW, folder) as file:
        return _read_all(file, path, max_bytes)


def copy_plain(source: Path, target: Path, name: str) -> None:
    """Copy a file, or a folder with its content, from ``source`` to ``target``; do nothing if it is absent.

    Raises OSError for a link, a FIFO and a device in it, so that a copy has no files from elsewhere.
    """
    with folder_below(source) as place:
        if mode_of(name, place):
            _copy_below(place, name, target / name)


def _copy_below(place: int, name: str, target: Path) -> None:
    if not stat.S_ISDIR(mode_of(name, place)):
        with open_regular(name, os.O_NOFOLLOW, place) as file, new_file(target) as copy:
            shutil.copyfileobj(file, copy)
        return
    target.mkdir()
    with folder_below(place, name) as inner:
        for each in os.listdir(inner):
            _copy_below(inner, each, target / each)


def read_regular(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file of at most ``max_bytes`` bytes; follow links. Never waits.

    Raises OSError for a FIFO, a device and a larger file.
    """
    with open_regular(path) as file:
        return _read_all(file, path, max_bytes)


def read_named(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file, link or pipe that the user has named, of at most ``max_bytes`` bytes.

    Raises OSError for a larger file.
    """
    with path.open("rb") as file:
        return _read_all(file, path, max_bytes)


def _make_folder(folder: int, name: str) -> None:
    """Create a folder in an open folder if it is absent; replace a link by it."""
    if stat.S_ISLNK(mode_of(name, folder)):
        os.unlink(name, dir_fd=folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)


def _open_checked(path: Path | str, flags: int, folder: int | None, mode: str) -> BinaryIO:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    file_mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(file_mode):
        os.close(descriptor)
        if stat.S_ISDIR(file_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return cast(BinaryIO, os.fdopen(descriptor, mode))


def _read_all(file: BinaryIO, path: Path | str, max_bytes: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size <= max_bytes:
        parts = [file.read(size + 1)]  # a read takes memory for as many bytes as are requested
        total = len(parts[0])
        while total <= max_bytes and (part := file.read(_PART_BYTES)):  # a pipe, or a file that grows
            parts.append(part)
            total += len(part)
        if total <= max_bytes:
            return b"".join(parts)
    raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes", str(path))
