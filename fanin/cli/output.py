"""What the commands write: files and directories that appear whole or not at all, and tables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fanin.errors import InputError

RUN_FILE = "run.json"  # a directory that holds one is a run of ours, and may be replaced


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all. Raises InputError when its folder cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        raise


def check_writable(path: Path) -> None:
    """Raise InputError where ``write_file`` would, before the work whose result is to be written."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: Is a directory")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        cause = "Permission denied" if folder.is_dir() else "Not a directory"
        raise InputError(f"{path}: cannot be written: {cause}")


def check_run_directory(path: Path) -> None:
    """Raise InputError unless ``path`` is free: absent, empty, or an earlier run."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"{path}: is a file; -o names a directory")
    if any(path.iterdir()) and not (path / RUN_FILE).is_file():
        raise InputError(f"{path}: exists and holds no {RUN_FILE} of an earlier run; choose another -o")


@contextlib.contextmanager
def run_directory(path: Path) -> Iterator[Path]:
    """A temporary directory that becomes ``path`` at the end, and vanishes when the body fails.

    Raises InputError as ``check_run_directory`` does.
    """
    check_run_directory(path)
    beside = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        scratch = Path(tempfile.mkdtemp(dir=beside, prefix=f".{path.name}."))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        scratch.chmod(0o777 & ~_umask())
        yield scratch
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            shutil.rmtree(path)
        scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    print(json.dumps(value, indent=2))


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "  ") -> str:
    """Rows in columns as wide as their widest cell; the columns named in ``right`` are set flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return (indent + "  ".join(cells)).rstrip()

    return "\n".join(map(line, rows))
