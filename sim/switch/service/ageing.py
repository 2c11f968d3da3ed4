"""Entries that no packet hits: P4Runtime's idle timeouts.

All calls come from the thread of the forwarding loop; times are seconds of the monotonic clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from finsy.proto import p4r

from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.tables import Entry, Table
from fanin.sim.switch.service.tables import TableEntries

SCAN = 0.05  #: seconds between looks at the entries, and the shortest timeout
_NS = 1e-9


class Ageing:
    """Tells the primary controller by ``send`` which entries of ``switch`` were not hit for their timeout."""

    def __init__(
        self, switch: Switch, entries: TableEntries, send: Callable[[p4r.StreamMessageResponse], bool]
    ):
        self._tables = [switch.table(name) for name, info in switch.program.tables.items() if info.ages]
        self._entries = entries
        self._send = send

    def run(self) -> float:
        """Tell of those that are due; when the next may be."""
        now = time.monotonic_ns()
        due = math.inf
        for table in self._tables:
            idle = []
            for entry, timeout in _with_timeouts(table):
                if max(entry.touched, entry.told) + timeout <= now:
                    entry.told = now  # its timer begins anew
                    idle.append(self._entries.key(table, entry))
                due = min(due, (max(entry.touched, entry.told) + timeout) * _NS)
            if idle:
                message = p4r.IdleTimeoutNotification(table_entry=idle, timestamp=time.time_ns())
                self._send(p4r.StreamMessageResponse(idle_timeout_notification=message))
        return max(due, now * _NS + SCAN)


def _with_timeouts(table: Table) -> Iterator[tuple[Entry, int]]:
    for entry in table.entries():
        if entry.note is not None and entry.note.idle_timeout_ns:
            yield entry, max(entry.note.idle_timeout_ns, int(SCAN / _NS))
