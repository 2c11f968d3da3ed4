"""Errors for users, in contrast to errors for developers.

Their text may come from files and peers, and reaches terminals by tracebacks, too. Control characters
in it are therefore escapes.
"""

from fanin.base.printable import printable


class _Printable(Exception):
    """Exception whose text is safe for a terminal."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(_Printable):
    """Bad input. The message is one line: file, line where there is one, cause. The command exits with 2."""


class DoesNotFit(InputError):
    """A data set is empty, or needs more than a node has. The message says what would fit, not which set."""


class ToolFailed(_Printable, RuntimeError):
    """A tool that fanin calls failed; the message has its last words. The command exits with 1."""


class CheckFailed(_Printable):
    """A check did not hold (a model not bit-exact, a benchmark over its limit). The command exits with 1."""
