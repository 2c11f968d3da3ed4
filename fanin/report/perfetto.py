"""Timelines for Perfetto (ui.perfetto.dev) and chrome://tracing: the JSON trace event format."""

from __future__ import annotations

import json
import re
from typing import Any


class Trace:
    """Slices on tracks. A track is a process and a thread of it; what overlaps lies on further lanes of it.

    Slices of a track are given in the order of their beginnings.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[str, str], list[float]] = {}  # of a track: when the last slice of each ends
        self._notes: dict[str, Any] = {}

    def slice(self, process: str, thread: str, name: str, begin_ns: float, end_ns: float, **facts: Any) -> None:
        """Something that lasts, with ``facts`` about it."""
        lanes = self._lanes.setdefault((process, thread), [])
        lane = next((n for n, end in enumerate(lanes) if end <= begin_ns), len(lanes))
        lanes[lane : lane + 1] = [end_ns]
        pid = self._processes.setdefault(process, len(self._processes) + 1)
        tid = self._threads.setdefault(
            (pid, f"{thread} ({lane + 1})" if lane else thread), len(self._threads) + 1
        )
        event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin_ns / 1000}
        event["dur"] = (end_ns - begin_ns) / 1000
        self._events.append(event | ({"args": facts} if facts else {}))

    def note(self, name: str, value: Any) -> None:
        """A fact about the whole trace."""
        self._notes[name] = value

    def text(self) -> str:
        """The trace; times in it are in microseconds, as the format has them."""
        named = [_meta("process", pid, process, pid) for process, pid in self._processes.items()]
        for place, ((pid, thread), tid) in enumerate(sorted(self._threads.items(), key=_natural)):
            named.append(_meta("thread", pid, thread, place, tid=tid))
        events = [event for pair in named for event in pair]
        value = {"traceEvents": events + self._events, "displayTimeUnit": "ns", "otherData": self._notes}
        return json.dumps(value, separators=(",", ":")) + "\n"


def _meta(what: str, pid: int, name: str, place: int, **ids: int) -> list[dict[str, Any]]:
    """The name of a process or thread, and its place among the others."""
    ids = {"pid": pid, **ids}
    return [
        {"ph": "M", **ids, "name": f"{what}_name", "args": {"name": name}},
        {"ph": "M", **ids, "name": f"{what}_sort_index", "args": {"sort_index": place}},
    ]


def _natural(thread: tuple[tuple[int, str], int]) -> tuple[int, list[tuple[int, str]]]:
    """By process; then slot 9 before slot 10."""
    (pid, name), _ = thread
    return pid, [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]
