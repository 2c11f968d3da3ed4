"""Files of a folder that somebody else may have filled."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from fanin.base.records import parse_json

MOST = 256 << 20  #: bytes of a file


def read_plain(path: Path) -> bytes:
    """Return a regular file's content, ``MOST`` bytes at most. Never waits.

    Raises OSError for a link, a FIFO, a device and a larger file. A link may lead to a file that only the
    caller can read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        if status.st_size > MOST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(MOST)


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file that ``read_plain`` reads; None for any other file."""
    try:
        value = parse_json(read_plain(path))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
