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
from fanin.base.records import read_object
from fanin.base.scratch import WRITER_FILE, delete_scratch, reported


@dataclass(frozen=True)
class Writer:
    """Process that writes a folder."""

    pid: int | None = None  #: None: unknown, because the process is starting or ending
    host: str | None = None  #: machine of the process; None: unknown

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        elsewhere = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.pid}{elsewhere}"


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Lock a directory for this process; create an absent directory, and delete it if it stays empty.

    The system locks the directory itself, so the lock always ends with the process. On file systems without
    locks, no process is refused. Incomplete files of a killed process are deleted. Raises InputError if another
    process writes the directory.
    """
    with made_directory(path), _opened(path) as folder:
        if not _locked(folder):
            known = writer_of(path) or Writer()
            raise InputError(f"{path}: {known} is writing it; wait until it ends, or choose another folder")
        delete_scratch(path)
        with reported(path):
            _write_name(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(WRITER_FILE, dir_fd=folder)  # in the open folder, which may have been renamed


@contextlib.contextmanager
def made_directory(path: Path) -> Iterator[None]:
    """Create a directory if it is absent, and delete it at the end if it is empty then. Raises InputError."""
    absent = [place for place in (path.absolute(), *path.absolute().parents) if not place.exists()]
    with reported(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a folder with files stays
            for place in absent:
                place.rmdir()


def writer_of(path: Path) -> Writer | None:
    """Return the process that holds :func:`sole_writer` of a directory; None if no process does."""
    with _opened(path) as folder:
        if _locked(folder, fcntl.LOCK_SH):
            return None
    try:
        return Writer(**(read_object(path / WRITER_FILE) or {}))
    except TypeError:
        return Writer()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a directory, which closing it unlocks."""
    with reported(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        yield folder
    finally:
        os.close(folder)


def _locked(folder: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open directory; return False if another process holds the lock."""
    try:
        fcntl.flock(folder, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _write_name(folder: int) -> None:
    """Write this process's name into an open directory."""
    handle = os.open(WRITER_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666, dir_fd=folder)
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(Writer(os.getpid(), socket.gethostname())), file)
