"""Atomic files, their temporary names, and the removal of temporary files of dead processes.

A command writes a file or folder under a temporary name beside its place, and renames it at the end. The
temporary name contains its owner: the machine and the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from fanin.base.errors import InputError
from fanin.base.interrupts import deferred_interrupts
from fanin.base.plain import folder_below, mode_of

SCRATCH = ".fanin-"  #: prefix of every temporary name
#: Files of a folder's current writer, which the next writer replaces: its progress, its process.
LIVE_FILE, WRITER_FILE = f"{SCRATCH}live.json", f"{SCRATCH}writer.json"
_OPEN_FILES = "/proc/"  # beginning of the target of /dev/stdout and its like
_PROCESSES = Path("/proc/self/ns/pid")  # Linux: the namespace that process ids belong to
_NAME_A_FILE = "the output replaces it, so name a file"
_STATUS = Path("/proc/self/status")


def scratch_prefix() -> str:
    """Return the prefix of this process's temporary names: ``.fanin-MACHINE-PROCESS-``."""
    return f"{SCRATCH}{machine()}-{os.getpid()}-"


def machine() -> str:
    """Return the host's name and its namespace of process ids, which differs between containers."""
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = _PROCESSES.stat().st_ino
    return f"{socket.gethostname()}.{namespace}"


def is_scratch(path: Path) -> bool:
    """Whether a path has a temporary name."""
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


def delete_leftovers(folder: Path | int) -> None:
    """Delete temporary files and folders in ``folder`` whose owner is a dead process of this machine.

    Names without an owner and names of other machines stay, because their owners may be alive.

    - ``folder``: path or descriptor.
    """
    # OSError: the folder is deleted, or another user's.
    with contextlib.suppress(OSError), folder_below(folder) as descriptor:
        for name in os.listdir(descriptor):
            if (owner := _owner(name)) and not is_alive(owner):
                delete(name, descriptor)


def delete_scratch(folder: Path | int) -> None:
    """Delete temporary files of dead processes in ``folder`` and in its direct subfolders, and the live file.

    The caller must be the only writer of the folder. Files of live processes, other machines and users stay.
    No link in the folder is followed. Raises OSError.

    - ``folder``: path or descriptor.
    """
    with folder_below(folder) as descriptor:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(LIVE_FILE, dir_fd=descriptor)
        delete_leftovers(descriptor)
        for name in os.listdir(descriptor):
            # OSError: no folder.
            with contextlib.suppress(OSError), folder_below(descriptor, name) as subfolder:
                delete_leftovers(subfolder)


def _owner(name: str) -> int | None:
    """Return the process of this machine that owns a temporary name; None for any other name."""
    prefix = f"{SCRATCH}{machine()}-"
    process, _, random = name.removeprefix(prefix).partition("-")
    return int(process) if name.startswith(prefix) and random and process.isdecimal() else None


def delete(path: Path | str, folder: int | None = None) -> None:
    """Delete a file, a folder with its content, or a symbolic link without its target.

    - ``folder``: descriptor of the folder to which ``path`` is relative; None: the working directory.
    """
    if stat.S_ISDIR(mode_of(path, folder)):
        shutil.rmtree(path, dir_fd=folder)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=folder)


@contextlib.contextmanager
def as_input_error(path: Path) -> Iterator[None]:
    """Convert an OSError into an InputError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_replaceable(path: Path) -> None:
    """Raise InputError if a new file at ``path`` would take the place of a device, a FIFO or a socket.

    A link counts as its target, and a link to an open file, such as ``/dev/stdout``, as a device.
    """
    _check_no_device(path)
    with contextlib.suppress(OSError):  # absent
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            raise InputError(f"{path}: is a {'FIFO' if stat.S_ISFIFO(mode) else 'socket'}; {_NAME_A_FILE}")


def _check_no_device(path: Path) -> None:
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        leads_to_open_file = path.is_symlink() and os.readlink(path).startswith(_OPEN_FILES)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or leads_to_open_file:
            raise InputError(f"{path}: is a device; {_NAME_A_FILE}")


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file atomically. Raises InputError if its folder cannot be written."""
    with output_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_files(folder: Path, contents: Mapping[str, bytes | str], *, mark: str | None = None) -> None:
    """Write files into a folder, by name. All are complete before the first one replaces an earlier file.

    They replace earlier files in the order of ``contents``; an interrupt waits until all are replaced. Raises
    InputError if a file cannot be written, for instance on a full disk; the earlier files then stay.

    - ``mark``: name of the last file. Its earlier version is deleted before the first file is replaced, so a
      folder with a mark is whole, also after SIGKILL. None: no file is deleted.
    """
    with contextlib.ExitStack() as stack:  # leaves the contexts in reverse order
        for name, content in reversed(list(contents.items())):
            file = stack.enter_context(output_file(folder / name))
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()  # a full disk is found here
        with deferred_interrupts():
            if mark is not None:
                with as_input_error(folder / mark):
                    (folder / mark).unlink(missing_ok=True)
            stack.close()


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` at the end; if the body fails, the file is deleted.

    Raises InputError for every OSError, also one of the body, and for a device in the file's place.
    """
    _check_no_device(path)
    with as_input_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        delete_leftovers(path.parent)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=scratch_prefix())
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            os.chmod(name, 0o666 & ~umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # an interrupt after the renaming
                os.unlink(name)
            raise


def umask() -> int:
    """Return the permissions that new files do not get."""
    with contextlib.suppress(OSError, StopIteration):  # Linux: read without changing the mask
        lines = _STATUS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
