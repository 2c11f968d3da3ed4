"""Progress on stderr, when stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from fanin.base.printable import terminal
from fanin.sim.cosim.run import Progress

MIN_SECONDS = 5.0  # work before the first estimate of the time left


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a tqdm bar on stderr, disabled if stderr is no terminal. Closing the bar erases it."""
    defaults = {"leave": False, "file": terminal(), "disable": not sys.stderr.isatty()}
    return tqdm(iterable, **(defaults | options))


class EpochBar:
    """Progress bar of a run, with its epoch and cycle; a context manager."""

    def __init__(self, *, epochs: int, operations: int):
        """Create the bar. ``epochs``: of the run; ``operations``: AllReduces of the run, all nodes together."""
        self._epochs, self._operations = epochs, operations
        self._bar = progress_bar(total=operations, unit="op")

    def update(self, progress: Progress) -> None:
        """Show the run's current epoch, cycle and number of operations."""
        per_epoch = self._operations / self._epochs
        epoch = min(int(progress.operations / per_epoch) + 1, self._epochs)
        self._bar.set_description(f"epoch {epoch}/{self._epochs}, cycle {progress.cycle:,}", refresh=False)
        self._bar.update(progress.operations - self._bar.n)

    def __enter__(self) -> EpochBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()


class TimeLeft:
    """Estimate of the time left, from the rate of work since the first request."""

    def __init__(self, total: int):
        self._total = total
        self._first: tuple[int, float] | None = None

    def text(self, done: int) -> str:
        """Return the time left after ``done`` units, as ``words`` does; empty before the first estimate."""
        return self.words(self.seconds(done))

    def seconds(self, done: int) -> float | None:
        """Return the time left in s; None in the first ``MIN_SECONDS`` or without progress."""
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        first_done, start = self._first
        if done == first_done or now - start < MIN_SECONDS:
            return None
        return (now - start) * (self._total - done) / (done - first_done)

    @staticmethod
    def words(seconds: float | None) -> str:
        """Return text such as ``, 0:01:30 left``; empty for None."""
        return "" if seconds is None else f", {timedelta(seconds=round(seconds))} left"


class StatusLine:
    """Status line of the work on the terminal; a context manager."""

    def __init__(self) -> None:
        self._bar = progress_bar(bar_format="{desc}")

    def show(self, text: str) -> None:
        """Replace the line."""
        self._bar.set_description_str(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
