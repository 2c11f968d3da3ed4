"""Collectives in flight: a thread that runs them in order, and the objects that PyTorch waits for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist


class Work(dist._Work):
    """Collective in flight.

    The function that runs it must end by itself (collectives have the group's timeout): ``wait`` ignores
    ``timeout``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._completion: torch.futures.Future[Any] = torch.futures.Future()
        # C++ code, in which DistributedDataParallel waits, sees only an exception that a callback raises.
        self._future = self._completion.then(_result)

    def end(self, result: Any, error: Exception | None) -> None:
        """Finish the collective and wake waiting threads."""
        self._completion.set_result((result, error))

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the collective has run; raise its exception, if any."""
        _result(self._completion, wait=True)
        return True

    def is_completed(self) -> bool:
        """Return whether the collective has run or failed."""
        return self._completion.done()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the collective's tensors."""
        return self._future


def _result(completion: torch.futures.Future[Any], *, wait: bool = False) -> Any:
    result, error = completion.wait() if wait else completion.value()
    if error is not None:
        raise error
    return result


class CallQueue:
    """Daemon thread that runs calls sequentially.

    A separate thread delivers each result and runs its callbacks: a callback may call collectives and wait for
    them, as PowerSGD's do. After ``close`` no more calls are accepted.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Work] | None] = queue.SimpleQueue()
        self._deliveries: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.Lock()  # no call is queued after the end mark
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Work:
        """Run ``function`` after all earlier calls; return the work with its result.

        Raises DistBackendError after ``close``, since the call would never run.
        """
        work = Work()
        with self._lock:
            if self._closed:
                raise dist.DistBackendError("the process group has been destroyed")
            self._calls.put((function, work))
        return work

    def close(self, seconds: float) -> bool:
        """End the threads after all calls have run; return whether they ended within ``seconds``."""
        with self._lock:
            self._closed = True
            self._calls.put(None)
        deadline = monotonic() + seconds
        self._thread.join(seconds)
        threads = (self._thread, *self._deliveries)  # including threads of the last calls
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self) -> None:
        while call := self._calls.get():
            function, work = call
            try:
                self._deliver(work, function(), None)
            except Exception as error:
                self._deliver(work, None, error)
            del call, function, work  # do not hold tensors while waiting for the next call

    def _deliver(self, work: Work, result: Any, error: Exception | None) -> None:
        thread = threading.Thread(target=work.end, args=(result, error), daemon=True)
        thread.start()
        self._deliveries = [*(delivery for delivery in self._deliveries if delivery.is_alive()), thread]
