"""P4Runtime's idle timeouts: notices about entries that no packet has hit.

All calls come from the thread of the forwarding loop; times are seconds of the monotonic clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice

from finsy.proto import p4r

from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.tables import Entry
from fanin.sim.switch.service.tables import TableEntries

SCAN = 0.05  #: seconds between two scans of the entries, and the shortest timeout
_BATCH = 100  # entries in one step of a scan
_PAUSE_RATIO = 10  # pause between two scans, relative to the duration of the first
_NS = 1e-9


class Ageing:
    """Notifies the primary controller of entries of ``switch`` that had no hit during their idle timeout.

    - ``entries``: P4Runtime's view of the entries, for the keys in notices.
    - ``send``: sends a message to the primary controller; returns False if there is none.
    """

    def __init__(
        self, switch: Switch, entries: TableEntries, send: Callable[[p4r.StreamMessageResponse], bool]
    ):
        self._tables = [switch.table(name) for name, info in switch.program.tables.items() if info.has_timeouts]
        self._entries = entries
        self._send = send
        self._steps: Iterator[None] | None = None  # steps of the scan in progress, if any
        self._due = math.inf  # time of the next timeout
        self._pause_end = 0.0  # time before which no scan begins

    def run(self) -> float:
        """Take a step of a scan if one is due; return the time of the next step."""
        if self._steps is None:
            if not self._tables or time.monotonic() < max(self._due, self._pause_end):
                return max(self._due, self._pause_end)
            self._steps = self._scan()
        for _ in self._steps:
            return 0.0
        self._steps = None
        return max(self._due, self._pause_end)

    def wake(self) -> None:
        """Scan again soon, since an entry has a new timeout."""
        self._due = 0.0

    def _scan(self) -> Iterator[None]:
        """Scan all entries; notify the controller of those that are due."""
        begin, self._due = time.monotonic(), math.inf
        for table in self._tables:
            entries = chain.from_iterable(table.pages())
            while batch := list(islice(entries, _BATCH)):
                idle = [entry for entry in batch if self._is_due(entry)]
                keys = [self._entries.key(table, entry) for entry in idle if table.holds(entry)]
                if keys:
                    message = p4r.IdleTimeoutNotification(table_entry=keys, timestamp=time.time_ns())
                    self._send(p4r.StreamMessageResponse(idle_timeout_notification=message))
                yield
        end = time.monotonic()
        self._pause_end = end + max(SCAN, _PAUSE_RATIO * (end - begin))

    def _is_due(self, entry: Entry) -> bool:
        """Return whether an entry had no hit during its timeout; if so, the timeout starts again."""
        if entry.controller_fields is None or not entry.controller_fields.idle_timeout_ns:
            return False
        timeout = max(entry.controller_fields.idle_timeout_ns, int(SCAN / _NS))
        now = time.monotonic_ns()
        due = max(entry.last_hit, entry.notified) + timeout <= now
        if due:
            entry.notified = now
        self._due = min(self._due, (max(entry.last_hit, entry.notified) + timeout) * _NS)
        return due
