"""What is known of the run that writes a folder: from its live file, and what it leaves."""

from __future__ import annotations

import socket
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from fanin.cli.live import FORMAT, changed_ns
from fanin.cli.output import CAMPAIGN, CLASSES_FOLDER, LIVE_FILE, REPORT_FILE, RUN_FILE
from fanin.cli.scratch import is_alive
from fanin.cli.stopped import GONE
from fanin.records import parse_json

NOTHING = "the run was stopped before it trained, and left nothing"


class State(StrEnum):
    """Of the run in a folder."""

    WAITING = "waiting"  #: there is none yet
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"  #: or stopped from outside, or its process has gone


class Watched:
    """The run that writes ``folder``, which may not exist yet."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._seen: dict[str, Any] | None = None  # the live file of a run, which has gone when the run ends

    def progress(self) -> dict[str, Any]:
        """What the page shows. docs/reference/watch.md has the fields."""
        live = _read(self.folder / LIVE_FILE)
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

    def reports(self) -> dict[str, Path]:
        """What there is to read of the run, by its address: a report, or one for each of several classes.

        Nothing while the run goes on: what the folder has then is of an earlier one.
        """
        if (self.folder / LIVE_FILE).exists() or not self._is_new():
            return {}
        found = {"/report": self.folder / REPORT_FILE}
        classes = self.folder / CLASSES_FOLDER
        if classes.is_dir():
            names = sorted((each.name for each in classes.iterdir() if each.name.isdecimal()), key=int)
            found |= {f"/report/{name}": classes / name / REPORT_FILE for name in names}
        return {address: path for address, path in found.items() if path.is_file()}

    @property
    def _mark(self) -> Path:
        """What a run leaves, or a campaign of many."""
        campaign = self.folder / CAMPAIGN.mark
        return campaign if campaign.is_file() else self.folder / RUN_FILE

    def _state(self, live: dict[str, Any] | None) -> tuple[State, str | None]:
        if live is not None:
            return (State.RUNNING, None) if _alive(live) else (State.FAILED, GONE)
        if not self._is_new():
            return (State.FAILED, NOTHING) if self._seen else (State.WAITING, None)
        error = (_read(self._mark) or {}).get("error")
        return (State.ENDED, None) if error is None else (State.FAILED, str(error))

    def _is_new(self) -> bool:
        """Whether the folder has a run's result, and not one that was there before the run that was seen."""
        changed = changed_ns(self._mark)
        return changed is not None and (self._seen is None or changed != self._seen.get("earlier"))


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is none."""
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _alive(live: dict[str, Any]) -> bool:
    """Whether the process that writes a live file is there; of another machine's process nothing is known."""
    pid = live.get("pid")
    if live.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 1:
        return True
    return is_alive(pid)
