"""Files that another user may have filled or exchanged."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from fanin.base.records import parse_json

MOST = 256 << 20  #: bytes of a file


def open_regular(path: Path | str, flags: int = 0, folder: int | None = None) -> BinaryIO:
    """Open a regular file to read it. Never waits. Raises OSError for a FIFO or a device.

    ``flags``: more of ``os.open``; ``folder``: a descriptor of the folder that ``path`` begins at.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return file


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
    """Return a regular file's content, ``most`` bytes at most. Never waits.

    Raises OSError for a link, a FIFO, a device and a larger file. A link may lead to a file that only the
    caller can read.
    """
    with open_regular(path, os.O_NOFOLLOW) as file:
        return _content(file, path, most)


def read_named(path: Path, most: int = MOST) -> bytes:
    """Return the content of a file, link or pipe that the caller's user has named, ``most`` bytes at most.

    Raises OSError for a larger one.
    """
    with path.open("rb") as file:
        return _content(file, path, most)


def _content(file: BinaryIO, path: Path, most: int) -> bytes:
    if os.fstat(file.fileno()).st_size <= most:
        content = file.read(most + 1)
        if len(content) <= most:
            return content
    raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(path))


def read_object(path: Path, most: int = MOST) -> dict[str, Any] | None:
    """Return the JSON object in a file that ``read_plain`` reads; None for any other file."""
    try:
        value = parse_json(read_plain(path, most))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
