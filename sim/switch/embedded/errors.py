"""Errors of a P4 text and constructs that this switch does not implement, each with its position."""

from __future__ import annotations

from typing import NamedTuple

from fanin.base.errors import InputError


class Position(NamedTuple):
    """A position in a P4 text; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class P4Error(InputError):
    """An error in a P4 text; message ``file:line:column: what``."""

    def __init__(self, position: Position, message: str):
        super().__init__(f"{position}: {message}")
        self.position = position
        self.what = message


class Refused(P4Error):
    """Not implemented, or undefined in P4; refusing is better than a wrong result."""


class Unsupported(Refused):
    """A construct that this switch does not implement; ``what`` names it with a noun in the singular."""

    def __init__(self, position: Position, what: str):
        super().__init__(position, f"{what} is not supported here")


class RunRefused(Exception):
    """Raised by the runtime, which knows no positions; ``Program`` turns it into a ``Refused`` with one."""
