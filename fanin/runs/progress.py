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

MIN_SECONDS = 5.0  # of observed work before the first estimate: earlier ones vary widely


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """Return a tqdm bar on stderr, disabled if stderr is no terminal. Closing the bar erases it."""
    defaults = {"leave": False, "file": terminal(), "disable": not sys.stderr.isatty()}
    return tqdm(iterable, **(defaults | options))


class EpochBar:
    """Progress bar of a run, with its epoch and cycle; a context manager.

    - ``epochs``: number of epochs of the run, at least 1.
    - ``operations``: number of AllReduces of the run, at least 1, in the unit of ``Progress.operations``: each
      node counts its own, so an AllReduce of N nodes counts N times.
    """

    def __init__(self, *, epochs: int, operations: int):
        for name, value in (("epochs", epochs), ("operations", operations)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self._epochs, self._operations = epochs, operations
        self._bar = progress_bar(total=operations, unit="op")

    def update(self, progress: Progress) -> None:
        """Show the current epoch, cycle and number of operations; ``progress`` counts from the run's start."""
        per_epoch = self._operations / self._epochs
        epoch = min(int(progress.operations / per_epoch) + 1, self._epochs)
        self._bar.set_description(f"epoch {epoch}/{self._epochs}, cycle {progress.cycle:,}", refresh=False)
        self._bar.update(progress.operations - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()


class TimeLeft:
    """Estimate of the time left, from the rate of work since the first call of :meth:`seconds`.

    Work before that call, such as restored work, does not count towards the rate.

    - ``total``: number of units of work. Any unit will do, for example epochs or frames.
    """

    def __init__(self, total: int):
        self._total = total
        self._first: tuple[int, float] | None = None  # units done and clock in s, at the first call

    def seconds(self, done: int) -> float | None:
        """Return the time left in s after ``done`` units.

        Return None within ``MIN_SECONDS`` of the first call, and while no unit was finished after it.
        """
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        first_done, start = self._first
        if done == first_done or now - start < MIN_SECONDS:
            return None
        return (now - start) * (self._total - done) / (done - first_done)


def time_left_text(seconds: float | None) -> str:
    """Return a status line's ending such as ``, 0:01:30 left``; empty for None."""
    return "" if seconds is None else f", {timedelta(seconds=round(seconds))} left"


class StatusLine:
    """One line on the terminal with the current state of the work; a context manager that erases it."""

    def __init__(self) -> None:
        self._bar = progress_bar(bar_format="{desc}")

    def show(self, text: str) -> None:
        """Replace the line by ``text``."""
        self._bar.set_description_str(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
