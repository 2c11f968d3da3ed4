"""Exclusive writer of a folder: a system lock, and a file that names the process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.plain import folder_below, new_file
from fanin.base.records import read_object
from fanin.base.scratch import WRITER_FILE, as_input_error, delete_scratch


@dataclass(frozen=True)
class Writer:
    """Process that writes a folder."""

    pid: int | None = None  #: None: unknown, because the process is starting or ending
    host: str | None = None  #: machine of the process; None: unknown

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        location = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.pid}{location}"


@contextlib.contextmanager
def sole_writer(path: Path, *, follow_link: bool = True) -> Iterator[int]:
    """Lock a directory for this process and yield its descriptor.

    An absent directory is created, and deleted if it stays empty. The system locks the directory itself, so the
    lock always ends with the process. On file systems without locks, no process is refused. Incomplete files of
    a killed process are deleted. Raises InputError if another process writes the directory.

    - ``follow_link``: False refuses a path that is a link.
    """
    with ensure_directory(path), _open_directory(path, follow_link) as folder:
        if not try_lock(folder):
            writer = writer_of(path) or Writer()
            raise InputError(f"{path}: {writer} is writing it; wait until it ends, or choose another folder")
        with as_input_error(path):
            delete_scratch(folder)
        try:
            with as_input_error(path / WRITER_FILE), new_file(WRITER_FILE, folder) as file:
                file.write(json.dumps(asdict(Writer(os.getpid(), socket.gethostname()))).encode())
            yield folder
        finally:
            with contextlib.suppress(OSError):
                os.unlink(WRITER_FILE, dir_fd=folder)  # in the open folder, which may have been renamed


@contextlib.contextmanager
def ensure_directory(path: Path) -> Iterator[None]:
    """Create a directory if it is absent, and delete it at the end if it is empty then. Raises InputError."""
    absent = [
        path_to_delete
        for path_to_delete in (path.absolute(), *path.absolute().parents)
        if not path_to_delete.exists()
    ]
    with as_input_error(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a folder with files stays
            for path_to_delete in absent:
                path_to_delete.rmdir()


def writer_of(path: Path) -> Writer | None:
    """Return the process that holds :func:`sole_writer` of a directory; None if no process does."""
    with _open_directory(path) as folder:
        if try_lock(folder, fcntl.LOCK_SH):
            return None
    try:
        return Writer(**(read_object(path / WRITER_FILE) or {}))
    except TypeError:
        return Writer()


@contextlib.contextmanager
def _open_directory(path: Path, follow_link: bool = True) -> Iterator[int]:
    """Open a directory; closing it releases its lock. ``follow_link``: False refuses a path that is a link."""
    with contextlib.ExitStack() as stack:
        with as_input_error(path):
            opening = folder_below(path) if follow_link else folder_below(path.parent, path.name)
            folder = stack.enter_context(opening)
        yield folder


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open directory or file; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True
