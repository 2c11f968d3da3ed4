"""Process of an unfinished run, read from the folder's lock and the run's live file."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.records import Record, read_object
from fanin.base.scratch import LIVE_FILE
from fanin.runs.live import FORMAT, changed_ns
from fanin.runs.lock import writer_of
from fanin.runs.output import RUN_FILE
from fanin.runs.unfinished import KILLED


@dataclass(frozen=True)
class RunProcess:
    """A process that is writing a run's folder, or was killed while writing it."""

    running: bool  #: the process holds the folder's lock
    pid: int | None  #: None if not known
    host: str | None  #: machine of the process
    command: str | None  #: fanin command, such as ``train``; this and later fields are None without a live file
    began: float | None  #: start time in seconds since 1970
    written: float | None  #: time of the last sign of life, in seconds since 1970
    stage: str | None  #: activity, such as ``training``
    epoch: str | None  #: such as ``3/10``; also None if the run does not count epochs
    done: int | None  #: operations so far
    total: int | None  #: operations of the whole run; 0 while not known
    unit: str | None  #: name of the operations, in the plural
    earlier: int | None  #: time at which an earlier run's run.json was written, in ns since 1970

    @property
    def error(self) -> str | None:
        """Cause of the end of a killed process; None while it runs."""
        return None if self.running else KILLED

    def has_written(self, folder: Path) -> bool:
        """Return whether ``run.json`` in the folder is of this process, not of an earlier run."""
        change_time = changed_ns(folder / RUN_FILE)
        return change_time is not None and (self.began is None or change_time != self.earlier)

    def lines(self) -> list[str]:
        """Return state, progress and process, for people."""
        location = "" if self.host in (None, socket.gethostname()) else f" on {self.host}"
        process = f"process {self.pid}{location}" if self.pid else "another process"
        if self.began is None or self.written is None:
            return [f"running: {process} is writing the folder"]
        if self.running:
            first = f"running since {_time(self.began)}: {process} is alive"
        else:
            times = f"it began at {_time(self.began)}, its last sign is of {_time(self.written)}"
            first = f"killed: {process} is gone; {times}"
        return [first, f"fanin {self.command}: {self._progress()}"]

    def _progress(self) -> str:
        counted = f"{self.done:,} of {self.total:,} {self.unit}" if self.total else ""
        epoch = f"epoch {self.epoch}" if self.epoch else ""
        return ", ".join(filter(None, (self.stage, epoch, counted)))


def process_of(folder: Path) -> RunProcess | None:
    """Return the process of a folder; None if none writes it and none was killed while writing it."""
    writer, content = writer_of(folder), _read_live_file(folder)
    if writer is None and content is None:
        return None
    fields = content or {}
    return RunProcess(
        running=writer is not None,
        pid=fields.get("pid") or (writer.pid if writer else None),
        host=fields.get("host") or (writer.host if writer else None),
        epoch=fields.get("now", {}).get("epoch"),
        **{name: fields.get(name) for name in _NAMES},
    )


_MAX_TIME = 1 << 33  # seconds since 1970; the year 2242
_NAMES = ("command", "began", "written", "stage", "done", "total", "unit", "earlier")


def _read_live_file(folder: Path) -> dict[str, Any] | None:
    """Return the live file; None without one, or for another version's. Raises InputError for a wrong field."""
    path = folder / LIVE_FILE
    value = read_object(path)
    if not value or value.get("format") != FORMAT:
        return None
    record = Record(str(path), "", value)
    for name in ("command", "host", "stage", "unit"):
        record.text(name)
    for name in ("pid", "done", "total"):
        record.integer(name)
    for name in ("began", "written"):
        if record.number(name) >= _MAX_TIME:
            raise record.error(f"{name} is no time in seconds since 1970")
    record.optional("earlier")
    if "epoch" in (progress := record.record("now")).value:
        progress.optional_text("epoch")
    return value


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
