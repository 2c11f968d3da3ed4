"""Files that become whole at once, their names until then, and those that a process that has died has left.

A command writes a file, or a folder, beside its place and renames it. The name until then holds its owner: the
machine and the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fanin.base.errors import InputError

SCRATCH = ".fanin-"  #: prefix of every name that is not whole yet
#: Names of a folder's present writer, which the next one replaces: its progress, its process.
LIVE_FILE, WRITER_FILE = f"{SCRATCH}live.json", f"{SCRATCH}writer.json"
_PROCESSES = Path("/proc/self/ns/pid")  # Linux: the namespace that process ids belong to
_STATUS = Path("/proc/self/status")


def scratch_prefix() -> str:
    """Return the beginning of a name that this process owns: ``.fanin-MACHINE-PROCESS-``."""
    return f"{SCRATCH}{machine()}-{os.getpid()}-"


def machine() -> str:
    """Return the host's name, with the namespace of process ids that tells its containers apart."""
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = _PROCESSES.stat().st_ino
    return f"{socket.gethostname()}.{namespace}"


def is_scratch(path: Path) -> bool:
    """Whether a name is one of a file that is not whole yet."""
    return path.name.startswith(SCRATCH)


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # OverflowError: no process has that number
        return False
    except PermissionError:  # another user's process
        return True
    return True


def delete_leftovers(folder: Path) -> None:
    """Delete files and folders in ``folder`` whose owner was a process of this machine and has died.

    Names without an owner stay, and so do those of other machines: whether their owners live is not known here.
    """
    with contextlib.suppress(OSError):  # also deleted by another process, or another user's
        for path in folder.glob(f"{SCRATCH}{machine()}-*"):
            if (owner := _owner(path)) and not is_alive(owner):
                delete(path)


def delete_scratch(folder: Path) -> None:
    """Delete what a process that has died has left in ``folder``, and in the folders in it.

    The caller is the only writer of the folder. Files of live processes, of other machines and of users stay.
    """
    with reported(folder):
        (folder / LIVE_FILE).unlink(missing_ok=True)
        for place in (folder, *(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())):
            delete_leftovers(place)


def _owner(path: Path) -> int | None:
    """The process of this machine in a name, if the name has one."""
    process, _, random = path.name.removeprefix(f"{SCRATCH}{machine()}-").partition("-")
    return int(process) if random and process.isdecimal() else None


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; of a symbolic link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn the system's refusal of a write into an InputError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all. Raises InputError when its folder cannot be written."""
    with output_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes ``path``, whole, at the end; nothing is left of it if the body fails.

    What the system refuses in the body is taken for a refused write. Raises InputError for it.
    """
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        delete_leftovers(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=scratch_prefix())
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(name, 0o666 & ~umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def umask() -> int:
    """Return the permissions that new files do not get."""
    with contextlib.suppress(OSError, StopIteration):  # Linux: without a moment in which all have another one
        lines = _STATUS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
