"""Live file: progress of a running run, in the run's folder, for ``fanin watch``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fanin.base.errors import InputError
from fanin.base.scratch import LIVE_FILE, write_file
from fanin.runs.lock import ensure_directory
from fanin.runs.output import RUN_FILE, finite
from fanin.runs.progress import StatusLine, TimeLeft, time_left_text

FORMAT = 1
TRAINING = "training"  # the stage in which progress is counted
MIN_SECONDS_BETWEEN_WRITES = 1.0  # minimum time between two writes
MAX_SAMPLES = 512  # per series; a full series drops every second point and samples half as often


class Series:
    """Series of points over time or epochs. A series over ``MAX_SAMPLES`` points is thinned evenly."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._stride, self._count = 1, 0

    def add(self, at: float, value: float) -> None:
        """Add a point; a thinned series keeps only every second, fourth, eighth … point."""
        self._count += 1
        if (self._count - 1) % self._stride:
            return
        if len(self.points) == MAX_SAMPLES:
            del self.points[1::2]
            self._stride *= 2
        self.points.append((at, value))


class LiveFile:
    """Writer of a run's live file in ``folder``; a context manager. docs/reference/watch.md lists the fields.

    The first :meth:`stage` creates the file, and the folder if it is absent. Progress replaces the file
    atomically, at most once a second; a new stage does so at once. The end of the context deletes the file, and
    a created folder that is still empty. The run continues without the file if a write fails.
    """

    def __init__(self, folder: Path, command: str, *, title: str, unit: str):
        """Prepare the file; nothing is written yet.

        - ``folder``: folder of the run.
        - ``command``: fanin command of the run.
        - ``title``: training data, as the page shows it.
        - ``unit``: unit of progress, in the plural.
        """
        self._path = folder / LIVE_FILE
        self._facts: dict[str, Any] = {"command": command, "title": title, "unit": unit}
        self._folder = contextlib.ExitStack()
        self._time_left = TimeLeft(0)
        self._done, self._total = 0, 0
        self._seconds_left: float | None = None
        self._stage, self._values = "", dict[str, Any]()
        self._counts, self._losses = Series(), dict[str, Series]()
        self._start, self._last_write = 0.0, -MIN_SECONDS_BETWEEN_WRITES

    def stage(self, text: str) -> None:
        """Write the current stage, in words; the first call creates the file."""
        if not self._start:
            self._begin()
        if text != self._stage:
            self._stage = text
            self._write()

    def expect(self, total: int) -> None:
        """Set the total number of units and restart the estimate of the time left."""
        self._total, self._time_left = total, TimeLeft(total)

    def advance(self, done: int, **values: str | int | float) -> str:
        """Record ``done`` units and the page's other ``values``; return the text of ``time_left_text``."""
        self._done, self._seconds_left, self._values = done, self._time_left.seconds(done), values
        if time.monotonic() - self._last_write >= MIN_SECONDS_BETWEEN_WRITES:
            self._counts.add(self._seconds, done)
            self._write()
        return time_left_text(self._seconds_left)

    def losses(self, series: str, at: float, loss: float) -> None:
        """Add the loss after ``at`` epochs to a series; the next write of the file contains it."""
        self._losses.setdefault(series, Series()).add(at, loss)

    def __enter__(self) -> LiveFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._folder.close()

    @property
    def _seconds(self) -> float:
        return time.time() - self._start

    def _begin(self) -> None:
        self._start = time.time()
        with contextlib.suppress(InputError):
            self._folder.enter_context(ensure_directory(self._path.parent))
        self._facts |= {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": self._start,
            "earlier": changed_ns(self._path.with_name(RUN_FILE)),
        }

    def _write(self) -> None:
        self._last_write = time.monotonic()
        value = {
            "format": FORMAT,
            **self._facts,
            "written": time.time(),
            "stage": self._stage,
            "done": self._done,
            "total": self._total,
            "seconds_left": self._seconds_left,
            "now": self._values,
            "counts": self._counts.points,
            "losses": {name: series.points for name, series in self._losses.items()},
        }
        with contextlib.suppress(InputError):
            write_file(self._path, json.dumps(finite(value)) + "\n")


class RunStatus(StatusLine):
    """Progress of one run, on the terminal and in the live file; a context manager."""

    def __init__(self, live: LiveFile) -> None:
        super().__init__()
        self._live_file = live

    def stage(self, text: str) -> None:
        """Show the current stage, in words."""
        self._live_file.stage(text)
        self.show(text)

    def expect(self, total: int) -> None:
        """Set the total number of units."""
        self._live_file.expect(total)

    def advance(self, done: int, text: str, **values: str | int | float) -> None:
        """Record ``done`` units: show ``text`` and the time left on the terminal, ``values`` on the page."""
        self._live_file.stage(TRAINING)
        self.show(text + self._live_file.advance(done, **values))

    def losses(self, series: str, at: float, loss: float) -> None:
        """Add the loss after ``at`` epochs to a series of the live file."""
        self._live_file.losses(series, at, loss)


def changed_ns(path: Path) -> int | None:
    """Return a file's time of change in ns, None if it is absent. The page detects a new ``run.json`` by it."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
