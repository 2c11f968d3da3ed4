"""Other ranks of a group: agreement on the configuration, liveness, and diagnosis of the rank that fails.

All communication is through the group's store. A thread of each rank regularly writes a heartbeat with the
number of collectives that the rank has begun. A rank whose wait fails reads the heartbeats.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from fanin.base.printable import printable

BEAT_SECONDS = 0.2
SILENT_SECONDS = 1.5  #: a rank without heartbeats for this time has ended
_STORE_SECONDS = 10.0  # longest wait for the store in diagnosis; allows for a busy machine
_BLAME = "blame"  # key of the cause that all ranks report
_MAX_TEXT = 1000  # bytes of a peer's text in an error
_BEAT = re.compile(rb"(\d{1,18}) (\d{1,18})")


def peer_text(content: bytes) -> str:
    """Return a peer's text as one line without control characters, for an error."""
    return printable(" ".join(content[:_MAX_TEXT].decode(errors="replace").split()))


class Peers:
    """The ranks of a group, as one rank sees them: their configuration, heartbeats and failures.

    Methods raise DistBackendError of one line. ``global_ranks`` are the ranks' numbers in the whole job.
    """

    def __init__(self, store: dist.Store, *, rank: int, global_ranks: list[int], timeout: timedelta):
        self._store, self._rank, self.global_ranks, self._timeout = store, rank, global_ranks, timeout
        self._collectives = 0  # that this rank has begun
        self._store_stopped = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(store.clone(),), daemon=True)

    def agree(self, fact: str) -> None:
        """Wait for all ranks, and raise unless all give the same ``fact``; then start this rank's heartbeat."""
        start = time.monotonic()
        with contextlib.suppress(RuntimeError):  # a broken connection shows in the wait below
            self._store.set(f"fact/{self._rank}", fact)
        for other in range(len(self.global_ranks)):
            try:
                self._store.wait([f"fact/{other}"], self._timeout)
                other_fact = self._store.get(f"fact/{other}")
            except RuntimeError as error:
                seconds = self._timeout.total_seconds()
                if time.monotonic() < start + seconds:  # of the store's connection
                    raise dist.DistBackendError(
                        "rank 0 has ended, or torchrun, which holds the store"
                    ) from error
                raise dist.DistBackendError(
                    f"rank {self.global_ranks[other]} has not come in {seconds:g} s: "
                    f"of {len(self.global_ranks)} ranks"
                ) from error
            if other_fact != fact.encode():
                self.mark_informed()
                with contextlib.suppress(RuntimeError):
                    self.linger(alive_only=False)
                raise dist.DistBackendError(
                    f"rank {self.global_ranks[other]} says {peer_text(other_fact)}, "
                    f"rank {self.global_ranks[self._rank]} {fact}: "
                    "all ranks must say the same"
                )
        self._thread.start()

    def begin(self) -> int:
        """Count a collective that this rank begins; return its number, from 1."""
        self._collectives += 1
        return self._collectives

    def close(self) -> None:
        """Stop this rank's heartbeat.

        If the store's process is stopped, the thread may hang; it then ends with this process.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STORE_SECONDS)

    def blame(self, collective: str) -> str | None:
        """Return one line that names the rank that made ``collective`` fail; live ranks return the same line.

        Returns None if no rank did: all are alive and have begun the collective.
        """
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A store whose process is stopped never answers, without a timeout.
        threading.Thread(target=lambda: answers.put(self._diagnose(collective)), daemon=True).start()
        try:
            return answers.get(timeout=SILENT_SECONDS + _STORE_SECONDS)
        except queue.Empty:
            self._store_stopped = True
            return f"{collective}: rank 0 has stopped answering, or torchrun, which holds the store"

    def _diagnose(self, collective: str) -> str | None:
        """Return the recorded cause, or find and record it; hang if the store's process is stopped."""
        try:
            if self._store.check([_BLAME]):
                return peer_text(self._store.get(_BLAME))
            fault = self._find_fault()
            return None if fault is None else self.propose_cause(f"{collective}: {fault}")
        except RuntimeError:  # of the store's connection
            return f"{collective}: rank 0 has ended, or torchrun, which holds the store"

    def mark_informed(self) -> None:
        """Record in the store that this rank knows the cause and has given up."""
        if not self._store_stopped:  # otherwise the diagnosing thread holds the connection for ever
            with contextlib.suppress(RuntimeError):
                self._store.set(f"informed/{self._rank}", "")

    def linger(self, *, alive_only: bool = True) -> None:
        """Keep rank 0, which may hold the store, alive until the others know the cause, for a limited time.

        Ranks without heartbeats are not waited for, unless ``alive_only`` is false.
        """
        if self.global_ranks[self._rank] != 0 or self._store_stopped:  # a stopped store answers no rank
            return
        waiting = [rank for rank in range(len(self.global_ranks)) if rank != self._rank]
        start, previous = time.monotonic(), self._beats()
        last_check = start
        while not all(self._store.check([f"informed/{rank}"]) for rank in waiting):
            time.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if now > start + _STORE_SECONDS:
                return
            if alive_only and now > last_check + SILENT_SECONDS:
                last_check, current = now, self._beats()
                waiting = [rank for rank in waiting if current[rank] != previous[rank]]
                previous = current

    def propose_cause(self, message: str) -> str:
        """Propose ``message`` as the cause for all ranks; return the first proposal, which is final."""
        return peer_text(self._store.compare_set(_BLAME, "", message))

    def _find_fault(self) -> str | None:
        """Return the ranks without heartbeats, or else those that have not begun the collective; else None."""
        previous = self._beats()
        time.sleep(SILENT_SECONDS)
        current = self._beats()
        others = [rank for rank in range(len(self.global_ranks)) if rank != self._rank]
        ended_ranks = [self.global_ranks[rank] for rank in others if previous[rank] == current[rank]]
        if ended_ranks:
            return f"{_ranks(ended_ranks)} ended, or stopped answering"
        late_ranks = [self.global_ranks[rank] for rank in others if current[rank][1] < self._collectives]
        return f"{_ranks(late_ranks)} not come in {self._timeout.total_seconds():g} s" if late_ranks else None

    def _beats(self) -> list[tuple[int, int]]:
        """Return each rank's number of heartbeats so far, and its number of begun collectives.

        Both are 0 for a rank without a heartbeat, or with another text in its place.
        """
        keys = [f"beat/{rank}" for rank in range(len(self.global_ranks))]
        texts = [self._store.get(key) if self._store.check([key]) else b"" for key in keys]
        beats = [_BEAT.fullmatch(text) for text in texts]
        return [(int(beat[1]), int(beat[2])) if beat else (0, 0) for beat in beats]

    def _beat(self, store: dist.Store) -> None:
        count = 0
        while not self._stop.wait(BEAT_SECONDS):
            count += 1
            try:
                store.set(f"beat/{self._rank}", f"{count} {self._collectives}")
            except RuntimeError:  # the store has ended, and with it the job
                return


def _ranks(numbers: list[int]) -> str:
    text = ", ".join(map(str, numbers))
    return f"rank {text} has" if len(numbers) == 1 else f"ranks {text} have"
