"""Properties of processes: BLAS threads, and the end with a parent process."""

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
_callers = 0  # number of callers inside one_blas_thread, in all threads
_undo = contextlib.ExitStack()  # restores the process after the last caller


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit matrix products to one thread, in this process and in processes that it starts.

    The number of threads affects the order of additions, so the bits of a result would depend on the number of
    cores. Callers in several threads share the limit: the first caller sets it, the last one lifts it.
    """
    global _callers
    with _lock:
        if not _callers:
            _undo.enter_context(_environment(dict.fromkeys(_VARIABLES, "1")))  # for later libraries
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
    """Set environment variables inside the context."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def die_with_parent(parent: int, signal_number: signal.Signals = signal.SIGTERM) -> None:
    """Make the system send a signal to this process when its ``parent`` process dies. Linux only.

    The new process calls the function. The system regards the thread that started the process as its parent.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:  # the parent has died before
        os._exit(1)
