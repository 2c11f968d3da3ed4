"""Errors for users, in contrast to errors for developers."""


class InputError(Exception):
    """Bad input. The message is one line: file, line where there is one, cause. The command exits with 2."""


class DoesNotFit(InputError):
    """A data set needs more than a node has. The message says what would fit, but not which data set."""


class ToolFailed(RuntimeError):
    """A tool that fanin calls failed; the message has its last words. The command exits with 1."""


class CheckFailed(Exception):
    """A check did not hold (a model not bit-exact, a benchmark over its limit). The command exits with 1."""
