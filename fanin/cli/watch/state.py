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
from fanin.runs.unfinished import GONE

MOST_LIVE, MOST_MARK = 4 << 20, 16 << 20  #: maximum bytes of a live file, and of a result's mark
NOTHING = "the run was stopped before it trained, and left nothing"


class State(StrEnum):
    """State of the run in a folder."""

    WAITING = "waiting"  #: no run yet
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"  #: failed, stopped from outside, or its process has died


class Watched:
    """Watched run that writes ``folder``, which may not exist yet."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._one_reads = threading.Lock()
        self._seen: dict[str, Any] | None = None  # the live file's last content

    def progress(self) -> dict[str, Any]:
        """Return the data of the page. docs/reference/watch.md describes the fields."""
        with self._one_reads:
            live = read_object(self.folder / LIVE_FILE, MOST_LIVE)
            if live is not None and live.get("format") == FORMAT:
                self._seen = live
            else:
                live = None
            state, error = self._state(live)
        return {
            "state": state,
            "error": error,
            "folder": str(self.folder),
            "now": time.time(),
            "reports": list(self.reports()) if state in (State.ENDED, State.FAILED) else [],
            "run": self._seen,
        }

    def reports(self) -> dict[str, tuple[str, ...]]:
        """Return the run's reports by address, as paths below the folder: the run's, and one per class.

        The result is empty during a run, because the folder's reports are then from an earlier run.
        """
        if (self.folder / LIVE_FILE).exists() or not self._is_new():
            return {}
        found: dict[str, tuple[str, ...]] = {"/report": (REPORT_FILE,)}
        for part in class_folders(self.folder):
            found[f"/report/{part.name}"] = (CLASSES_FOLDER, part.name, REPORT_FILE)
        paths = {address: self.folder.joinpath(*names) for address, names in found.items()}
        return {each: found[each] for each, path in paths.items() if path.is_file() and not path.is_symlink()}

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

    def _state(self, live: dict[str, Any] | None) -> tuple[State, str | None]:
        if live is not None:
            return (State.RUNNING, None) if _alive(live) else (State.FAILED, GONE)
        if not self._is_new():
            return (State.FAILED, NOTHING) if self._seen else (State.WAITING, None)
        error = (read_object(self._mark, MOST_MARK) or {}).get("error")
        return (State.ENDED, None) if error is None else (State.FAILED, str(error))

    def _is_new(self) -> bool:
        """Whether the folder has a result that is newer than the start of the watched run."""
        changed = changed_ns(self._mark)
        return changed is not None and (self._seen is None or changed != self._seen.get("earlier"))


def _alive(live: dict[str, Any]) -> bool:
    """Whether the process that writes a live file is alive; True for another machine, which is not checked."""
    pid = live.get("pid")
    if live.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return True
    return is_alive(pid)
