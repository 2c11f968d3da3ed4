"""What is wrong with a P4 text, or what of it this switch does not do: always with the place."""

from __future__ import annotations

from typing import NamedTuple

from fanin.base.errors import InputError


class Position(NamedTuple):
    """A place in a P4 text; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class P4Error(InputError):
    """A P4 text is wrong: ``file:line:column: what``."""

    def __init__(self, position: Position, message: str):
        super().__init__(f"{position}: {message}")
        self.position = position
        self.what = message


class Refused(P4Error):
    """Not implemented, or left undefined by P4: better no answer than a wrong one."""


class Unsupported(Refused):
    """A construct that this switch does not implement; ``what`` names it: a noun in the singular."""

    def __init__(self, position: Position, what: str):
        super().__init__(position, f"{what} is not supported here")


class RunRefused(Exception):
    """Raised by the runtime, which knows no places; ``Program`` turns it into a ``Refused`` with one."""
