"""Errors that a P4Runtime server answers to requests which it does not carry out."""

from __future__ import annotations

from finsy.proto import rpc_code

MAX_TEXT = 300  #: characters of a message


class Fault(Exception):
    """An update, or a whole request, that is not carried out; ``code`` is one of google.rpc.Code."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message if len(message) <= MAX_TEXT else message[: MAX_TEXT - 1] + "…"


def invalid(message: str) -> Fault:
    """Return the fault for a request that does not fit the program."""
    return Fault(rpc_code.INVALID_ARGUMENT, message)


def unknown(message: str) -> Fault:
    """Return the fault for an object that does not exist."""
    return Fault(rpc_code.NOT_FOUND, message)


def unimplemented(message: str) -> Fault:
    """Return the fault for a feature that this server does not implement; ``message`` names it."""
    return Fault(rpc_code.UNIMPLEMENTED, message)
