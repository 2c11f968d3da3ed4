"""Which Verilog is emitted while a command runs: a run's folder says what its results were computed with."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from contextvars import ContextVar

_noted: ContextVar[dict[str, str] | None] = ContextVar("emissions", default=None)


@contextlib.contextmanager
def emissions_noted() -> Iterator[dict[str, str]]:
    """SHA-256s of the Verilog that is emitted, or taken from the cache, inside: by the name of the module."""
    found: dict[str, str] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note_emission(module: str, text: str) -> None:
    """Tell who has asked of a module's Verilog."""
    noted = _noted.get()
    if noted is not None:
        noted[module] = hashlib.sha256(text.encode()).hexdigest()
