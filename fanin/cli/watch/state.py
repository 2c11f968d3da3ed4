"""State of the run that writes a folder, from its live file and its result."""

from __future__ import annotations

import socket
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from fanin.base.plain import open_below
from fanin.base.records import read_object
from fanin.base.scratch import LIVE_FILE, is_alive
from fanin.runs.live import FORMAT, changed_ns
from fanin.runs.output import CAMPAIGN, CLASSES_FOLDER, REPORT_FILE, RUN_FILE, class_folders
from fanin.runs.unfinished import KILLED

MAX_LIVE_BYTES, MAX_MARK_BYTES = 4 << 20, 16 << 20  #: maximum size of a live file, and of a result's mark
NO_RESULT = "the run was stopped before it trained, and left nothing"


class State(StrEnum):
    """State of the run in a folder."""

    WAITING = "waiting"  #: no run yet
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"  #: failed, stopped from outside, or its process has died


class WatchedRun:
    """Run that writes ``folder``, as ``fanin watch`` sees it. The folder need not exist yet."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = threading.Lock()
        self._last_live: dict[str, Any] | None = None  # last content of the live file

    def progress(self) -> dict[str, Any]:
        """Return the data of the page. docs/reference/watch.md describes the fields."""
        with self._lock:
            live = read_object(self.folder / LIVE_FILE, MAX_LIVE_BYTES)
            if live is not None and live.get("format") == FORMAT:
                self._last_live = live
            else:
                live = None
            state, error = self._state(live)
        return {
            "state": state,
            "error": error,
            "folder": str(self.folder),
            "now": time.time(),
            "reports": list(self.reports()) if state in (State.ENDED, State.FAILED) else [],
            "run": self._last_live,
        }

    def reports(self) -> dict[str, tuple[str, ...]]:
        """Return the run's reports by address, as paths below the folder: the run's, and one per class.

        The result is empty during a run, because the folder's reports are then from an earlier run.
        """
        if (self.folder / LIVE_FILE).exists() or not self._is_new():
            return {}
        names_by_address: dict[str, tuple[str, ...]] = {"/report": (REPORT_FILE,)}
        for folder in class_folders(self.folder):
            names_by_address[f"/report/{folder.name}"] = (CLASSES_FOLDER, folder.name, REPORT_FILE)
        paths = {address: self.folder.joinpath(*names) for address, names in names_by_address.items()}
        return {
            address: names_by_address[address]
            for address, path in paths.items()
            if path.is_file() and not path.is_symlink()
        }

    def open_report(self, address: str) -> BinaryIO | None:
        """Open a report of :meth:`reports`; return None if it is absent, or a link has replaced it."""
        names = self.reports().get(address)
        try:
            return open_below(self.folder, *names) if names else None
        except OSError:
            return None

    @property
    def _mark(self) -> Path:
        """Path of the result: ``campaign.json`` if it exists, else ``run.json``."""
        campaign = self.folder / CAMPAIGN.mark
        return campaign if campaign.is_file() else self.folder / RUN_FILE

    def _state(self, content: dict[str, Any] | None) -> tuple[State, str | None]:
        if content is not None:
            return (State.RUNNING, None) if _alive(content) else (State.FAILED, KILLED)
        if not self._is_new():
            return (State.FAILED, NO_RESULT) if self._last_live else (State.WAITING, None)
        error = (read_object(self._mark, MAX_MARK_BYTES) or {}).get("error")
        return (State.ENDED, None) if error is None else (State.FAILED, str(error))

    def _is_new(self) -> bool:
        """Whether the folder has a result that is newer than the start of the watched run."""
        change_time = changed_ns(self._mark)
        return change_time is not None and (
            self._last_live is None or change_time != self._last_live.get("earlier")
        )


def _alive(content: dict[str, Any]) -> bool:
    """Whether the process that writes a live file is alive; True for another machine, which is not checked."""
    pid = content.get("pid")
    if content.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return True
    return is_alive(pid)
