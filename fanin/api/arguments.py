"""Arguments that users give as text."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from fanin.errors import InputError

Choice = TypeVar("Choice", bound=StrEnum)


def chosen(kind: type[Choice], name: str, value: str) -> Choice:
    """The member of ``kind`` that an argument names. Raises InputError that lists them."""
    if value not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(value)
