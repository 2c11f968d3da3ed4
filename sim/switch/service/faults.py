"""What a P4Runtime server answers where it does not do what it is asked."""

from __future__ import annotations

from finsy.proto import rpc_code

MAX_TEXT = 300  #: characters of a message


class Fault(Exception):
    """One update, or a whole request, that is not carried out; ``code`` is one of google.rpc.Code."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message if len(message) <= MAX_TEXT else message[: MAX_TEXT - 1] + "…"


def invalid(message: str) -> Fault:
    """What does not fit the program."""
    return Fault(rpc_code.INVALID_ARGUMENT, message)


def unknown(message: str) -> Fault:
    """What there is none of."""
    return Fault(rpc_code.NOT_FOUND, message)


def missing(message: str) -> Fault:
    """What this server does not implement, named."""
    return Fault(rpc_code.UNIMPLEMENTED, message)
