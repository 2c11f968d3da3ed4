"""The one process that writes a folder: a lock of the system, and a file that names the process."""

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
    """The process that writes a folder."""

    pid: int | None = None  #: None: not known, since the process begins or ends at this moment
    host: str | None = None  #: machine of the process; None: not known

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        elsewhere = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.pid}{elsewhere}"


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Be the only process that writes a directory; an absent one is made, and deleted if it stays empty.

    The lock is the system's, on the directory itself: it ends with the process, however that ends. Where
    directories cannot be locked, no process is refused. Files that a killed process has not written whole are
    deleted. Raises InputError where another process writes the directory.
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
                os.unlink(WRITER_FILE, dir_fd=folder)  # of the open folder, which may have been renamed


@contextlib.contextmanager
def made_directory(path: Path) -> Iterator[None]:
    """A directory; an absent one is made, and deleted at the end if it stays empty. Raises InputError."""
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
    """Return the process that is in :func:`sole_writer` of a directory; None without one."""
    with _opened(path) as folder:
        if _locked(folder, fcntl.LOCK_SH):
            return None
    try:
        return Writer(**(read_object(path / WRITER_FILE) or {}))
    except TypeError:
        return Writer()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """An open directory; closing it unlocks it."""
    with reported(path):
        folder = os.open(path, os.O_RDONLY)
    try:
        yield folder
    finally:
        os.close(folder)


def _locked(folder: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open directory; False where another process has."""
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
