"""Processes: how many threads a library takes in them, and with whom they end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SET_PDEATHSIG = 1  # of Linux' prctl
_lock = threading.Lock()
_callers = 0  # within one_blas_thread, in all threads
_undo = contextlib.ExitStack()  # restores the process after the last caller


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit matrix products to one thread, in this process and in processes that it starts.

    With more threads a product adds its terms in another order, so that a seed's bits would depend on the
    number of cores. Callers in several threads share the limit: the first one sets it, the last one lifts it.
    """
    global _callers
    with _lock:
        if not _callers:
            _undo.enter_context(_environment(dict.fromkeys(_VARIABLES, "1")))  # of libraries that load later
            _undo.enter_context(threadpool_limits(1, user_api="blas"))
        _callers += 1
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if not _callers:
                _undo.close()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment, and restore them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_with(parent: int, how: signal.Signals = signal.SIGTERM) -> None:
    """Let the system send this process ``how`` when process ``parent`` dies, which has started it. Linux alone.

    Called in the new process. The system takes the thread that started it for its parent.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, how)
    if os.getppid() != parent:  # it has died before
        os._exit(1)
