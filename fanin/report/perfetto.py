"""Timelines for Perfetto (ui.perfetto.dev) and chrome://tracing, in the JSON trace event format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

MAX_EVENTS = 20_000  # per kind in a trace: some megabytes, which a browser opens at once

T = TypeVar("T")
_Thread = tuple[int, str, int]  # process, track, lane


class Trace:
    """Slices, instants and counters on tracks.

    A track is a thread of a process; overlapping slices get further lanes. Slices of a track must be added in
    order of their start. Times are in nanoseconds since the start, rounded to whole ones: viewers have no finer
    resolution, and neighbours must not overlap.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._threads: dict[_Thread, int] = {}
        self._places: dict[tuple[int, str], int] = {}  # order of declared tracks
        self._lanes: dict[tuple[str, str], list[int]] = {}  # by track: end of the last slice on each lane
        self._notes: dict[str, Any] = {}

    def declare(self, process: str, tracks: Iterable[str] = ()) -> None:
        """Declare a process after all earlier ones, and the order of its tracks; others are sorted by name."""
        pid = self._process(process)
        for track in tracks:
            self._places.setdefault((pid, track), len(self._places))

    def first(self, kind: str, items: Iterable[T], left_out: int = 0) -> Iterator[T]:
        """Yield the first ``MAX_EVENTS`` items; note how many of this ``kind`` are left out.

        ``left_out``: items that the caller has left out already.
        """
        for number, item in enumerate(items):
            if number < MAX_EVENTS:
                yield item
            else:
                left_out += 1
        if left_out:
            self.note(f"{kind} left out", left_out)

    def slice(self, process: str, thread: str, name: str, begin_ns: float, end_ns: float, **facts: Any) -> None:
        """Add an interval, with ``facts`` about it."""
        begin, end = round(begin_ns), round(end_ns)
        lanes = self._lanes.setdefault((process, thread), [])
        lane = 0
        while lane < len(lanes) and lanes[lane] > begin:
            lane += 1
        lanes[lane : lane + 1] = [end]
        self._add("X", process, thread, name, begin, facts, lane)
        self._events[-1]["dur"] = (end - begin) / 1000

    def instant(self, process: str, thread: str, name: str, time_ns: float, **facts: Any) -> None:
        """Add an event, on its own track or on one with slices."""
        self._add("i", process, thread, name, round(time_ns), facts)
        self._events[-1]["s"] = "t"  # scope: thread

    def counter(self, process: str, name: str, time_ns: float, value: float) -> None:
        """Set the value of a process's counter from that time on."""
        event = {"ph": "C", "pid": self._process(process), "name": name, "ts": round(time_ns) / 1000}
        self._events.append(event | {"args": {"value": value}})

    def note(self, name: str, value: Any) -> None:
        """Add a fact about the whole trace."""
        self._notes[name] = value

    def text(self) -> str:
        """Return the trace as text; its times are in microseconds, as the format requires."""
        used_processes = {event["pid"] for event in self._events}
        headers = [
            _meta("process", pid, name, pid) for name, pid in self._processes.items() if pid in used_processes
        ]
        for place, thread in enumerate(sorted(self._threads, key=self._order)):
            pid, track, lane = thread
            name = f"{track} ({lane + 1})" if lane else track
            headers.append(_meta("thread", pid, name, place, tid=self._threads[thread]))
        events = [event for pair in headers for event in pair]
        value = {"traceEvents": events + self._events, "displayTimeUnit": "ns", "otherData": self._notes}
        return json.dumps(value, separators=(",", ":")) + "\n"

    def _process(self, name: str) -> int:
        return self._processes.setdefault(name, len(self._processes) + 1)

    def _order(self, thread: _Thread) -> tuple[Any, ...]:
        """Return the sort key of a track: process, declared place, then natural order (slot 9 before slot
        10).
        """
        pid, track, lane = thread
        parts = [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", track)]
        return pid, self._places.get((pid, track), len(self._places)), parts, lane

    def _add(
        self,
        kind: str,
        process: str,
        thread: str,
        name: str,
        time: int,
        facts: dict[str, Any],
        lane: int = 0,
    ) -> None:
        pid = self._process(process)
        tid = self._threads.setdefault((pid, thread, lane), len(self._threads) + 1)
        event = {"ph": kind, "pid": pid, "tid": tid, "name": name, "ts": time / 1000}
        self._events.append(event | ({"args": facts} if facts else {}))


def _meta(kind: str, pid: int, name: str, place: int, **ids: int) -> list[dict[str, Any]]:
    """Return the events that name a process or thread and set its place."""
    ids = {"pid": pid, **ids}
    return [
        {"ph": "M", **ids, "name": f"{kind}_name", "args": {"name": name}},
        {"ph": "M", **ids, "name": f"{kind}_sort_index", "args": {"sort_index": place}},
    ]
