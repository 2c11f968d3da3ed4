"""Readers of files that another user may have written or replaced."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST = 64 << 20  #: default maximum size of a file, in bytes


def open_regular(path: Path | str, flags: int = 0, folder: int | None = None) -> BinaryIO:
    """Open a regular file to read it. Never waits. Raises OSError for a FIFO or a device.

    - ``flags``: additional flags of ``os.open``.
    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return os.fdopen(handle, "rb")


def open_below(folder: Path, *names: str) -> BinaryIO:
    """Open a regular file below ``folder``, by the folders and the file's name. Never waits.

    Raises OSError for a link below ``folder``, also for one that has just replaced a folder.
    """
    *parts, last = names
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            os.close(place)
            place = inner
        return open_regular(last, os.O_NOFOLLOW, place)
    finally:
        os.close(place)


def read_plain(path: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes. Never waits.

    Raises OSError for a link, a FIFO, a device and a larger file. A link may lead to a file that only the
    caller can read.
    """
    with open_regular(path, os.O_NOFOLLOW) as file:
        return _content(file, path, most)


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file of at most ``MOST`` bytes; follow links. Never waits.

    Raises OSError for a FIFO, a device and a larger file.
    """
    with open_regular(path) as file:
        return _content(file, path, MOST)


def read_named(path: Path, most: int = MOST) -> bytes:
    """Return the content of a file, link or pipe that the user has named, of at most ``most`` bytes.

    Raises OSError for a larger file.
    """
    with path.open("rb") as file:
        return _content(file, path, most)


def _content(file: BinaryIO, path: Path, most: int) -> bytes:
    if os.fstat(file.fileno()).st_size <= most:
        content = file.read(most + 1)
        if len(content) <= most:
            return content
    raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(path))
