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
    """An error in a P4 text; its text is ``file:line:column: reason``."""

    def __init__(self, position: Position, message: str):
        super().__init__(f"{position}: {message}")
        self.position = position
        self.reason = message


class Refused(P4Error):
    """A construct or value that is not implemented or that P4 leaves undefined.

    Refusing is better than a wrong result.
    """


class Unsupported(Refused):
    """A construct that this switch does not implement; ``construct`` names it with a noun in the singular."""

    def __init__(self, position: Position, construct: str):
        super().__init__(position, f"{construct} is not supported here")


class UndefinedRefused(Refused):
    """A use of a value that P4 leaves undefined. A permissive program has BMv2's value there instead."""


class RunRefused(Exception):
    """Raised by the runtime, which knows no positions; ``Program`` turns it into a ``Refused`` with one.

    ``refused``: class of the error that ``Program`` raises instead.
    """

    refused: type[Refused] = Refused


class RunUndefined(RunRefused):
    """Raised by the runtime where the result depends on an undefined value."""

    refused = UndefinedRefused
