"""Progress on stderr, when stderr is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm

from fanin.sim.cosim.run import Progress


class EpochBar:
    """Follows a run epoch by epoch, and micro-batch by micro-batch within; a context manager."""

    def __init__(self, *, epochs: int, operations: int):
        """``operations``: AllReduces of the whole run, all nodes together."""
        self._epochs, self._operations = epochs, operations
        self._bar = tqdm(total=operations, unit="op", leave=False, disable=not sys.stderr.isatty())

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


class StatusLine:
    """One line that says how far the work is; a context manager."""

    def __init__(self) -> None:
        self._bar = tqdm(bar_format="{desc}", leave=False, disable=not sys.stderr.isatty())

    def show(self, text: str) -> None:
        """Replace the line."""
        self._bar.set_description_str(text)

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
