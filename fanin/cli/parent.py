"""Processes that end when the one that has started them does, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_SET_PDEATHSIG = 1  # of Linux' prctl


def end_with(parent: int, how: signal.Signals = signal.SIGTERM) -> None:
    """Let the system send this process ``how`` when process ``parent`` dies, which has started it. Linux alone.

    Called in the new process. The system takes the thread that started it for its parent.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, how)
    if os.getppid() != parent:  # it has died before
        os._exit(1)
