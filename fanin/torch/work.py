"""Collectives under way: a thread that carries them out in order, and what PyTorch waits for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist


class Work(dist._Work):
    """A collective under way. The group's timeout bounds it."""

    def __init__(self) -> None:
        super().__init__()
        self._ended: torch.futures.Future[Any] = torch.futures.Future()
        # Only an exception that a callback raises is one for C++, where DistributedDataParallel waits.
        self._future = self._ended.then(_outcome)

    def end(self, result: Any, error: Exception | None) -> None:
        """Wake who waits."""
        self._ended.set_result((result, error))

    def wait(self, timeout: Any = None) -> bool:
        """Until it is carried out; raises what it has raised."""
        _outcome(self._ended, wait=True)
        return True

    def is_completed(self) -> bool:
        """Whether it is carried out, or has failed."""
        return self._ended.done()

    def get_future(self) -> torch.futures.Future[Any]:
        """Its tensors, once they are there."""
        return self._future


def _outcome(ended: torch.futures.Future[Any], *, wait: bool = False) -> Any:
    result, error = ended.wait() if wait else ended.value()
    if error is not None:
        raise error
    return result


class InOrder:
    """A thread that carries out calls one after the other. It does not keep the process from ending.

    Each result is handed over by a thread of its own, which runs what waits for it: a callback may call
    collectives itself, and wait for them, as PowerSGD's do. Once closed, it takes no more calls.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Work] | None] = queue.SimpleQueue()
        self._handing: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.Lock()  # so that no call comes in behind the last one
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Work:
        """Carry out ``function`` behind those before it; the work's result is its own.

        Raises DistBackendError once it is closed: who waits would wait for ever.
        """
        work = Work()
        with self._lock:
            if self._closed:
                raise dist.DistBackendError("the process group has been destroyed")
            self._calls.put((function, work))
        return work

    def close(self, seconds: float) -> bool:
        """End the threads when all calls are carried out; whether they have ended in that time."""
        with self._lock:
            self._closed = True
            self._calls.put(None)
        deadline = monotonic() + seconds
        self._thread.join(seconds)
        threads = (self._thread, *self._handing)  # those of the last calls, too
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self) -> None:
        while call := self._calls.get():
            function, work = call
            try:
                self._hand_over(work, function(), None)
            except Exception as error:
                self._hand_over(work, None, error)
            del call, function, work  # the next one may be long in coming: hold no tensors until then

    def _hand_over(self, work: Work, result: Any, error: Exception | None) -> None:
        thread = threading.Thread(target=work.end, args=(result, error), daemon=True)
        thread.start()
        self._handing = [*(each for each in self._handing if each.is_alive()), thread]
