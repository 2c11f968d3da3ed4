"""Cache of emitted Verilog and built simulators, shared by all runs.

The name of an entry is the digest of everything that determines its content, so an entry is never out of date.
An entry is written to a temporary place and renamed, so other processes see a complete entry or none. A lock
keeps two processes from making the same entry twice; it only saves time. The folder may be deleted while no
command runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fanin.base.errors import InputError

#: Folders of the cache, one per kind of entry.
EMISSION, BUILDS, MODELS, RUNTIME = "emitted", "verilated", "models", "runtime"
KINDS = {
    EMISSION: "Verilog of components",
    BUILDS: "simulators",
    MODELS: "parts of simulators that are Verilated separately",
    RUNTIME: "Verilator's own library and its header, compiled",
}
#: Maximum wait for an entry that another process makes; then the waiting process makes its own.
LOCK_TIMEOUT_SECONDS = 900.0
_VARIABLE = "FANIN_CACHE"
_FOLDER_MODE = 0o755  # largest mode in the cache: all may read it, as an administrator's cache for all users
_LOCK_SUFFIX, _UNFINISHED = ".lock", "making-"  # suffix of locks, and prefix of unfinished entries
_POLL_SECONDS = 0.05
_emissions: ContextVar[dict[str, str] | None] = ContextVar("emissions", default=None)


def cache_directory() -> Path:
    """Return the cache's folder: $FANIN_CACHE, or else ``fanin`` in $XDG_CACHE_HOME or ~/.cache.

    Raises InputError for a folder that others may write, because fanin runs programs from it.
    """
    if configured := os.environ.get(_VARIABLE):
        folder = Path(configured).absolute()  # builds and simulators run in other folders
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "fanin"
    for path in (folder, *(folder / kind for kind in KINDS)):
        with contextlib.suppress(OSError):  # an absent folder is created with its first entry
            _check_own(path, path.stat())
    return folder


def _check_own(path: Path, status: os.stat_result) -> None:
    """Raise InputError for a folder or file of another user, or one that others may write.

    A group counts as others, even a user's private one: no list names all users of a group, since one may have
    it as the primary group. With an access control list, the group's bits are the maximum of all entries.
    """
    writable = status.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
    if status.st_uid not in (os.geteuid(), 0):
        raise InputError(f"{path}: belongs to another user, whose programs would run; set {_VARIABLE}")
    if writable:
        cause = "other users or a group may write there, and fanin would run their programs"
        raise InputError(f"{path}: {cause}; delete it, or make it anew with mode 755")


def make_folder(folder: Path) -> None:
    """Create a folder of the cache, and those around it, which only this user may write."""
    for path in reversed((folder, *folder.parents)):
        if not path.exists():
            path.mkdir(_FOLDER_MODE, exist_ok=True)


def seal(entry: Path) -> None:
    """Take from other users the permission to write a new entry, which its parts may have by the umask."""
    for path in (entry, *entry.rglob("*")):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & _FOLDER_MODE)


def is_own(entry: Path) -> bool:
    """Return whether an entry exists, and no other user owns or may write any part of it."""
    try:
        for path in (entry, *entry.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # an unfinished part of another process
                status = path.lstat()
                if not stat.S_ISLNK(status.st_mode):
                    _check_own(path, status)
    except InputError:
        return False
    return entry.exists()


def delete_foreign(entry: Path) -> None:
    """Delete an entry that others may write; the caller holds its lock. Raises InputError if that fails."""
    if entry.exists() and not is_own(entry):
        shutil.rmtree(entry, ignore_errors=True)
        if entry.exists():
            raise InputError(f"{entry}: is open to programs of other users; delete it")


def digest(parts: Iterable[str | bytes]) -> str:
    """Return an entry's name: the digest of ``parts``, text and contents of text files."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update((part.encode() if isinstance(part, str) else part) + b"\0\0")
    return hasher.hexdigest()[:32]


@contextlib.contextmanager
def fresh_cache(enabled: bool = True) -> Iterator[None]:
    """Use an empty temporary cache inside the context, also in processes that are started there.

    - ``enabled``: False keeps the usual cache.
    """
    if not enabled:
        yield
        return
    previous = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="fanin-cache-") as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE)
            if previous is not None:
                os.environ[_VARIABLE] = previous


@contextlib.contextmanager
def entry_lock(entry: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of an entry; other processes wait for it for at most ``LOCK_TIMEOUT_SECONDS``.

    The caller must check inside the context whether the entry exists by now. On file systems without locks, no
    process waits.

    - ``on_wait``: called once if another process holds the lock.
    """
    lock = _open_locked(entry.with_name(entry.name + _LOCK_SUFFIX), on_wait)
    try:
        yield
    finally:
        if lock:
            with contextlib.suppress(OSError):  # waiting processes find the entry
                os.unlink(lock.name)
            lock.close()  # unlocks, as does the end of the process


def _open_locked(path: Path, on_wait: Callable[[], None]) -> IO[str] | None:
    """Return a file that is locked until it is closed; None if locking fails or times out."""
    try:
        file = path.open("w")
    except OSError:
        return None
    deadline, has_reported = time.monotonic() + LOCK_TIMEOUT_SECONDS, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if not has_reported:
                on_wait()
                has_reported = True
        except OSError:  # a file system without locks
            break
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECONDS)
    file.close()
    return None


@contextlib.contextmanager
def unfinished_entry(folder: Path) -> Iterator[Path]:
    """Yield a temporary directory in ``folder`` for an unfinished entry; delete it at the end."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as scratch:
        yield Path(scratch)


def cached_text(entry: Path, make: Callable[[], str]) -> str:
    """Return the text of an entry; make and store it if the entry is absent or damaged.

    If the folder cannot be written, the text is made and not stored.
    """
    if (text := _intact(entry)) is not None:
        return text
    with contextlib.suppress(OSError):
        make_folder(entry.parent)
    with entry_lock(entry):
        if (text := _intact(entry)) is None:
            text = make()
            with contextlib.suppress(OSError):
                _write(entry, text)
    return text


def _content_digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _intact(entry: Path) -> str | None:
    """Return an entry's text; None if others may write it, or if it differs from the SHA-256 in line 1."""
    try:
        if not is_own(entry):
            return None
        expected, _, content = entry.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content.decode() if expected == _content_digest(content) else None


def _write(entry: Path, text: str) -> None:
    content = text.encode()
    with unfinished_entry(entry.parent) as scratch:
        (scratch / "entry").write_bytes(_content_digest(content) + b"\n" + content)
        seal(scratch / "entry")
        (scratch / "entry").replace(entry)


@dataclass(frozen=True)
class CacheUsage:
    """Size of the cache's content of one kind: number of entries, and bytes of all files."""

    entries: int
    bytes: int


def usage_of(kind: str) -> CacheUsage:
    """Count the entries of a kind, and the bytes of all files, unfinished entries included."""
    folder = cache_directory() / kind
    entries = [
        path
        for path in folder.glob("*")
        if path.suffix != _LOCK_SUFFIX and not path.name.startswith(_UNFINISHED)
    ]
    return CacheUsage(len(entries), sum(_size(path) for path in folder.rglob("*")))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # its maker has just renamed it
        return 0


@contextlib.contextmanager
def recorded_emissions() -> Iterator[dict[str, str]]:
    """Collect the SHA-256s of Verilog that is emitted or read from the cache in the context, by module."""
    digests: dict[str, str] = {}
    token = _emissions.set(digests)
    try:
        yield digests
    finally:
        _emissions.reset(token)


def record_emission(module: str, text: str) -> None:
    """Record the SHA-256 of a module's Verilog in the active :func:`recorded_emissions`, if any."""
    digests = _emissions.get()
    if digests is not None:
        digests[module] = hashlib.sha256(text.encode()).hexdigest()
