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

MIN_SECONDS = 5.0  # of work, before it is told how much is left


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> tqdm:
    """A bar of tqdm with these options, if stderr is a terminal; it goes when it is closed."""
    shown = {"leave": False, "file": terminal(), "disable": not sys.stderr.isatty()}
    return tqdm(iterable, **(shown | options))


class EpochBar:
    """Follows a run epoch by epoch, and micro-batch by micro-batch within; a context manager."""

    def __init__(self, *, epochs: int, operations: int):
        """``operations``: AllReduces of the whole run, all nodes together."""
        self._epochs, self._operations = epochs, operations
        self._bar = progress_bar(total=operations, unit="op")

    def update(self, progress: Progress) -> None:
        """Show how far the run is."""
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


class Remaining:
    """How long work will take yet, from how long it has taken since it was first asked."""

    def __init__(self, total: int):
        self._total = total
        self._first: tuple[int, float] | None = None

    def after(self, done: int) -> str:
        """In words, with a comma in front; nothing until it can be told."""
        return self.words(self.seconds(done))

    def seconds(self, done: int) -> float | None:
        """None until it can be told."""
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        at_first, began = self._first
        if done == at_first or now - began < MIN_SECONDS:
            return None
        return (now - began) * (self._total - done) / (done - at_first)

    @staticmethod
    def words(seconds: float | None) -> str:
        """With a comma in front; nothing for None."""
        return "" if seconds is None else f", {timedelta(seconds=round(seconds))} left"


class StatusLine:
    """One line that says how far the work is; a context manager."""

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
