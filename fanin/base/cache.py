"""What is kept between runs: Verilog that was emitted, and simulators that were built, each made once.

An entry's name is the digest of all that decides its content, so that an entry is never out of date. It is
written beside its place and renamed into it: another process sees all of it, or nothing. A lock spares two
processes that want the same entry at once from making it twice; nothing but their time depends on it. The
folder may be deleted whenever no command runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fanin.base.errors import InputError

#: Folders, one for each kind of entries.
EMISSION, BUILDS, MODELS, RUNTIME = "emitted", "verilated", "models", "runtime"
KINDS = {
    EMISSION: "Verilog of components",
    BUILDS: "simulators",
    MODELS: "what simulators have of components that are Verilated apart",
    RUNTIME: "Verilator's own library and its header, compiled",
}
PATIENCE = 900.0  #: seconds that a process waits for another one's entry; then it makes its own
_VARIABLE = "FANIN_CACHE"
_LOCK, _MAKING = ".lock", "making-"  # how names end, and begin, of what is no entry
_POLL = 0.05  # seconds
_noted: ContextVar[dict[str, str] | None] = ContextVar("emissions", default=None)


def cache_directory() -> Path:
    """Where everything is kept: $FANIN_CACHE, else fanin under $XDG_CACHE_HOME or ~/.cache.

    Raises InputError where others may write, as programs are taken from there and carried out.
    """
    if own := os.environ.get(_VARIABLE):
        place = Path(own).absolute()  # builds and simulators run in other folders
    else:
        place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "fanin"
    for part in (place, *(place / kind for kind in KINDS)):
        with contextlib.suppress(OSError):  # it is made when something is kept
            _check_own(part, part.stat())
    return place


def _check_own(place: Path, found: os.stat_result) -> None:
    """Raise InputError for a folder of another user, or one that others may write.

    A group with the number of its user and no other member is that user's alone, as Debian makes them. With an
    access control list the bits of the group are the most that any entry of it allows.
    """
    shared = found.st_gid != found.st_uid or _has_members(found) or _has_entries(place)
    writable = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and shared)
    if found.st_uid not in (os.geteuid(), 0):
        raise InputError(f"{place}: another user's programs would be carried out from it; set {_VARIABLE}")
    if writable:
        raise InputError(f"{place}: others may put programs there, which would be carried out; delete it")


def _has_members(found: os.stat_result) -> bool:
    """Whether the group of a folder has other members than its user."""
    try:
        return bool({*grp.getgrgid(found.st_gid).gr_mem} - {pwd.getpwuid(found.st_uid).pw_name})
    except KeyError:  # without a name
        return False


def _has_entries(place: Path) -> bool:
    """Whether a folder has an access control list, or may have one that is not known."""
    try:
        os.getxattr(place, "system.posix_acl_access")
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True


def digest(parts: Iterable[str | bytes]) -> str:
    """Name of the entry that these parts decide, texts and contents of text files."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update((part.encode() if isinstance(part, str) else part) + b"\0\0")
    return hasher.hexdigest()[:32]


@contextlib.contextmanager
def fresh_cache(enabled: bool = True) -> Iterator[None]:
    """Within it nothing that was kept before is used; what is made there is deleted at its end.

    Processes that are started within it use the same folder. Unless ``enabled``, nothing changes.
    """
    if not enabled:
        yield
        return
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="fanin-cache-") as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE)
            if before is not None:
                os.environ[_VARIABLE] = before


@contextlib.contextmanager
def sole_maker(place: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Make the entry ``place`` inside: other processes wait for it, ``PATIENCE`` seconds at most.

    A process that gets in looks again whether the entry exists by now. ``waits`` is called once if the lock is
    held by another process. Where files cannot be locked, no process waits.
    """
    lock = _locked(place.with_name(place.name + _LOCK), waits)
    try:
        yield
    finally:
        if lock:
            with contextlib.suppress(OSError):  # the entry is in its place: who waits for it, finds it
                os.unlink(lock.name)
            lock.close()  # and unlocks; so does the end of a process, whatever ends it


def _locked(path: Path, waits: Callable[[], None]) -> IO[str] | None:
    """A file that is locked until it is closed; None when it cannot be, or not in time."""
    try:
        file = path.open("w")
    except OSError:
        return None
    deadline, told = time.monotonic() + PATIENCE, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if not told:
                waits()
                told = True
        except OSError:  # a file system without locks
            break
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL)
    file.close()
    return None


@contextlib.contextmanager
def making(folder: Path) -> Iterator[Path]:
    """A directory for a half-made entry of ``folder``; what is left in it at the end is deleted."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=_MAKING) as work:
        yield Path(work)


def kept_text(place: Path, make: Callable[[], str]) -> str:
    """The text that is kept at ``place``; made, and kept, where there is none or a damaged one.

    A folder that cannot be written to keeps nothing; the text is made all the same.
    """
    if (text := _intact(place)) is not None:
        return text
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
    with sole_maker(place):
        if (text := _intact(place)) is None:
            text = make()
            with contextlib.suppress(OSError):
                _write(place, text)
    return text


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _intact(place: Path) -> str | None:
    """The text of an entry whose first line is the SHA-256 of the rest."""
    try:
        expected, _, content = place.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content.decode() if expected == _sum(content) else None


def _write(place: Path, text: str) -> None:
    content = text.encode()
    with making(place.parent) as work:
        (work / "entry").write_bytes(_sum(content) + b"\n" + content)
        (work / "entry").replace(place)


@dataclass(frozen=True)
class Kept:
    """What is kept of one kind."""

    entries: int
    bytes: int


def kept(kind: str) -> Kept:
    """How many entries of a kind are kept, and the bytes of all their files, half-made ones included."""
    folder = cache_directory() / kind
    entries = [path for path in folder.glob("*") if path.suffix != _LOCK and not path.name.startswith(_MAKING)]
    return Kept(len(entries), sum(_size(path) for path in folder.rglob("*")))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # its maker has just renamed it
        return 0


@contextlib.contextmanager
def emissions_noted() -> Iterator[dict[str, str]]:
    """SHA-256s of the Verilog that is emitted, or taken from the cache, inside: by the name of the module."""
    found: dict[str, str] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note_emission(module: str, text: str) -> None:
    """Tell who has asked of a module's Verilog."""
    noted = _noted.get()
    if noted is not None:
        noted[module] = hashlib.sha256(text.encode()).hexdigest()
