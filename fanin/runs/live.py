"""How far a run is, while it goes on: a file in the run's folder, which ``fanin watch`` shows."""

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
from fanin.runs.lock import made_directory
from fanin.runs.output import RUN_FILE, finite
from fanin.runs.progress import Remaining, StatusLine

FORMAT = 1
TRAINING = "training"  # the stage that counts
EACH_SECONDS = 1.0  # between two writes
MOST_SAMPLES = 512  # of a series; then every second one is kept, and taken


class Series:
    """Points over time or epochs, at most ``MOST_SAMPLES``: a longer one is made coarser, evenly."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._each, self._seen = 1, 0

    def add(self, at: float, value: float) -> None:
        """One more point; of a coarse series, only every so many are kept."""
        self._seen += 1
        if (self._seen - 1) % self._each:
            return
        if len(self.points) == MOST_SAMPLES:
            del self.points[1::2]
            self._each *= 2
        self.points.append((at, value))


class LiveFile:
    """Writes the file of a run into ``folder``, whole, at most once a second; a context manager.

    It enters the folder's life with the first :meth:`stage` and goes at the end, with the folder where that
    stays empty. docs/reference/watch.md has its fields. Where the system refuses a write, the run goes
    on without the file.
    """

    def __init__(self, folder: Path, command: str, *, title: str, unit: str):
        """``command``: of fanin; ``title``: what is trained on; ``unit``: what is counted, in the plural."""
        self._path = folder / LIVE_FILE
        self._facts: dict[str, Any] = {"command": command, "title": title, "unit": unit}
        self._made = contextlib.ExitStack()
        self._remaining = Remaining(0)
        self._done, self._total = 0, 0
        self._seconds_left: float | None = None
        self._stage, self._now = "", dict[str, Any]()
        self._counts, self._losses = Series(), dict[str, Series]()
        self._began, self._written = 0.0, -EACH_SECONDS

    def stage(self, text: str) -> None:
        """What the run does now, in words."""
        if not self._began:
            self._begin()
        if text != self._stage:
            self._stage = text
            self._write()

    def expect(self, total: int) -> None:
        """How many there are to do, from now on."""
        self._total, self._remaining = total, Remaining(total)

    def advance(self, done: int, **now: str | int | float) -> str:
        """So many are done; ``now`` is shown beside. How long the rest takes, in words, as of ``Remaining``."""
        self._done, self._seconds_left, self._now = done, self._remaining.seconds(done), now
        if time.monotonic() - self._written >= EACH_SECONDS:
            self._counts.add(self._seconds, done)
            self._write()
        return self._remaining.words(self._seconds_left)

    def losses(self, series: str, at: float, loss: float) -> None:
        """A loss behind ``at`` epochs, written with the next advance."""
        self._losses.setdefault(series, Series()).add(at, loss)

    def __enter__(self) -> LiveFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._made.close()

    @property
    def _seconds(self) -> float:
        return time.time() - self._began

    def _begin(self) -> None:
        self._began = time.time()
        with contextlib.suppress(InputError):
            self._made.enter_context(made_directory(self._path.parent))
        self._facts |= {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": self._began,
            "earlier": changed_ns(self._path.with_name(RUN_FILE)),
        }

    def _write(self) -> None:
        self._written = time.monotonic()
        value = {
            "format": FORMAT,
            **self._facts,
            "written": time.time(),
            "stage": self._stage,
            "done": self._done,
            "total": self._total,
            "seconds_left": self._seconds_left,
            "now": self._now,
            "counts": self._counts.points,
            "losses": {name: series.points for name, series in self._losses.items()},
        }
        with contextlib.suppress(InputError):
            write_file(self._path, json.dumps(finite(value)) + "\n")


class RunStatus(StatusLine):
    """The terminal's line and the live file of one run, told together; a context manager."""

    def __init__(self, live: LiveFile) -> None:
        super().__init__()
        self._live = live

    def stage(self, text: str) -> None:
        """What the run does before it counts."""
        self._live.stage(text)
        self.show(text)

    def expect(self, total: int) -> None:
        """How many there are to do."""
        self._live.expect(total)

    def advance(self, done: int, text: str, **now: str | int | float) -> None:
        """So many are done: ``text`` for the terminal, with the time left; ``now`` for the page."""
        self._live.stage(TRAINING)
        self.show(text + self._live.advance(done, **now))

    def losses(self, series: str, at: float, loss: float) -> None:
        """A loss behind ``at`` epochs."""
        self._live.losses(series, at, loss)


def changed_ns(path: Path) -> int | None:
    """When a file was changed; null where there is none. Tells a run's file from an earlier one of its name."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
