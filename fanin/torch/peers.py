"""Other ranks of a group: agreement on the configuration, liveness, and diagnosis of the rank that fails.

All communication is through the group's store. A thread of each rank regularly writes a heartbeat with the
number of collectives that the rank has begun. A rank whose wait fails reads the heartbeats.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from datetime import timedelta

import torch.distributed as dist

BEAT_SECONDS = 0.2
SILENT_SECONDS = 1.5  #: a rank without heartbeats for this time has ended
_STORE_SECONDS = 10.0  # longest wait for the store in diagnosis; allows for a busy machine
_BLAME = "blame"  # key of the cause that all ranks report


class Peers:
    """The ranks of a group as seen by one of them; ``names`` are their numbers in the whole job.

    Raises DistBackendError of one line.
    """

    def __init__(self, store: dist.Store, *, rank: int, names: list[int], timeout: timedelta):
        self._store, self._rank, self.names, self._timeout = store, rank, names, timeout
        self._begun = 0
        self._store_stopped = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(store.clone(),), daemon=True)

    def agree(self, fact: str) -> None:
        """Wait for all ranks, and raise unless all give the same ``fact``; then start this rank's heartbeat."""
        begun = time.monotonic()
        with contextlib.suppress(RuntimeError):  # a broken connection shows in the wait below
            self._store.set(f"fact/{self._rank}", fact)
        for other in range(len(self.names)):
            try:
                self._store.wait([f"fact/{other}"], self._timeout)
                theirs = self._store.get(f"fact/{other}").decode()
            except RuntimeError as error:
                seconds = self._timeout.total_seconds()
                if time.monotonic() < begun + seconds:  # of the store's connection
                    raise dist.DistBackendError(
                        "rank 0 has ended, or torchrun, which holds the store"
                    ) from error
                raise dist.DistBackendError(
                    f"rank {self.names[other]} has not come in {seconds:g} s: of {len(self.names)} ranks"
                ) from error
            if theirs != fact:
                self.tell()
                with contextlib.suppress(RuntimeError):
                    self.linger(of_living=False)
                raise dist.DistBackendError(
                    f"rank {self.names[other]} says {theirs}, rank {self.names[self._rank]} {fact}: "
                    "all ranks must say the same"
                )
        self._thread.start()

    def begin(self) -> int:
        """Count a collective that this rank begins; return its number, from 1."""
        self._begun += 1
        return self._begun

    def close(self) -> None:
        """Stop this rank's heartbeat.

        If the store's process is stopped, the thread may hang; it then ends with this process.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STORE_SECONDS)

    def blame(self, what: str) -> str | None:
        """Return one line that names the rank that made ``what`` fail, the same on all live ranks.

        Returns None if no rank did: all are alive and have begun the collective.
        """
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A store whose process is stopped never answers, without a timeout.
        threading.Thread(target=lambda: answers.put(self._judged(what)), daemon=True).start()
        try:
            return answers.get(timeout=SILENT_SECONDS + _STORE_SECONDS)
        except queue.Empty:
            self._store_stopped = True
            return f"{what}: rank 0 has stopped answering, or torchrun, which holds the store"

    def _judged(self, what: str) -> str | None:
        try:
            if self._store.check([_BLAME]):
                return self._store.get(_BLAME).decode()
            found = self._missing()
            return None if found is None else self.accuse(f"{what}: {found}")
        except RuntimeError:  # of the store's connection
            return f"{what}: rank 0 has ended, or torchrun, which holds the store"

    def tell(self) -> None:
        """Record that this rank has given up and knows the cause."""
        if not self._store_stopped:  # otherwise the diagnosing thread holds the connection for ever
            with contextlib.suppress(RuntimeError):
                self._store.set(f"told/{self._rank}", "")

    def linger(self, *, of_living: bool = True) -> None:
        """Keep rank 0, which may hold the store, alive until the others know the cause, for a limited time.

        Ranks that are not alive are not waited for, unless ``of_living`` is false.
        """
        if self.names[self._rank] != 0 or self._store_stopped:  # a stopped store answers no rank
            return
        others = [rank for rank in range(len(self.names)) if rank != self._rank]
        began, before = time.monotonic(), self._beats()
        looked = began
        while not all(self._store.check([f"told/{rank}"]) for rank in others):
            time.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if now > began + _STORE_SECONDS:
                return
            if of_living and now > looked + SILENT_SECONDS:
                looked, after = now, self._beats()
                others = [rank for rank in others if after[rank] != before[rank]]
                before = after

    def accuse(self, message: str) -> str:
        """Propose ``message`` as the cause for all ranks; return the first proposal, which is final."""
        return self._store.compare_set(_BLAME, "", message).decode()

    def _missing(self) -> str | None:
        before = self._beats()
        time.sleep(SILENT_SECONDS)
        after = self._beats()
        others = [rank for rank in range(len(self.names)) if rank != self._rank]
        silent = [self.names[rank] for rank in others if before[rank] == after[rank]]
        if silent:
            return f"{_ranks(silent)} ended, or stopped answering"
        late = [self.names[rank] for rank in others if after[rank][1] < self._begun]
        return f"{_ranks(late)} not come in {self._timeout.total_seconds():g} s" if late else None

    def _beats(self) -> list[tuple[int, int]]:
        """Return the heartbeats of each rank so far, and the number of collectives it has begun."""
        keys = [f"beat/{rank}" for rank in range(len(self.names))]
        said = [self._store.get(key).split() if self._store.check([key]) else (b"0", b"0") for key in keys]
        return [(int(count), int(begun)) for count, begun in said]

    def _beat(self, store: dist.Store) -> None:
        count = 0
        while not self._stop.wait(BEAT_SECONDS):
            count += 1
            try:
                store.set(f"beat/{self._rank}", f"{count} {self._begun}")
            except RuntimeError:  # the store has ended, and with it the job
                return


def _ranks(numbers: list[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"rank {listed} has" if len(numbers) == 1 else f"ranks {listed} have"
