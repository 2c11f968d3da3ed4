"""Argument checks: InputError of one line for a value of the wrong kind."""

from __future__ import annotations

import os
from enum import StrEnum
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

from fanin.base.errors import InputError

Choice = TypeVar("Choice", bound=StrEnum)


def member_of(kind: type[Choice], name: str, value: str) -> Choice:
    """Return the member of ``kind`` that an argument names. Raises InputError that lists the members."""
    if value not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(value)


def check_integers(**arguments: object) -> None:
    """Raise InputError for the first argument that is not an integer of Python or NumPy."""
    _check("an integer", Integral, arguments)


def check_numbers(**arguments: object) -> None:
    """Raise InputError for the first argument that is not a real number of Python or NumPy."""
    _check("a number", Real, arguments)


def _check(kind_name: str, kind: type, arguments: dict[str, object]) -> None:
    for name, value in arguments.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name} must be {kind_name}, not {value!r}")


def path_of(name: str, value: object) -> Path:
    """Return an argument as a path. Raises InputError."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} must be a path, not {value!r}")
    return Path(value)
