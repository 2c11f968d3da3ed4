"""Deferral of interrupts while files are replaced."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the end of the context, whose body must be short.

    The first delayed signal is then raised; a body that fails raises its own exception instead. Python handles
    signals in the main thread alone, so the context does nothing in another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in handlers.items():
            if handler is not None:  # None: a handler that is not Python's
                signal.signal(number, record)
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
    for received_number in received[:1]:
        signal.raise_signal(received_number)
