"""Entries that no packet hits: P4Runtime's idle timeouts.

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

SCAN = 0.05  #: seconds between looks at the entries, and the shortest timeout
_AT_ONCE = 100  # entries in a step of a look
_REST = 10  # the next look waits for so many times the length of the last one
_NS = 1e-9


class Ageing:
    """Tells the primary controller by ``send`` which entries of ``switch`` were not hit for their timeout."""

    def __init__(
        self, switch: Switch, entries: TableEntries, send: Callable[[p4r.StreamMessageResponse], bool]
    ):
        self._tables = [switch.table(name) for name, info in switch.program.tables.items() if info.ages]
        self._entries = entries
        self._send = send
        self._steps: Iterator[None] | None = None  # of a look at all entries, if one is under way
        self._due = math.inf  # the next timeout
        self._rest = 0.0  # no look begins before

    def run(self) -> float:
        """Take a step of a look if one is due; return when the next step is."""
        if self._steps is None:
            if not self._tables or time.monotonic() < max(self._due, self._rest):
                return max(self._due, self._rest)
            self._steps = self._look()
        for _ in self._steps:
            return 0.0
        self._steps = None
        return max(self._due, self._rest)

    def wake(self) -> None:
        """An entry has a new timeout."""
        self._due = 0.0

    def _look(self) -> Iterator[None]:
        """Look at all entries, and tell of those that are due."""
        began, self._due = time.monotonic(), math.inf
        for table in self._tables:
            entries = chain.from_iterable(table.pages())
            while some := list(islice(entries, _AT_ONCE)):
                idle = [entry for entry in some if self._is_due(entry)]
                found = [self._entries.key(table, entry) for entry in idle if table.holds(entry)]
                if found:
                    message = p4r.IdleTimeoutNotification(table_entry=found, timestamp=time.time_ns())
                    self._send(p4r.StreamMessageResponse(idle_timeout_notification=message))
                yield
        end = time.monotonic()
        self._rest = end + max(SCAN, _REST * (end - began))

    def _is_due(self, entry: Entry) -> bool:
        """Whether an entry was not hit for its timeout, which begins anew then."""
        if entry.note is None or not entry.note.idle_timeout_ns:
            return False
        timeout = max(entry.note.idle_timeout_ns, int(SCAN / _NS))
        now = time.monotonic_ns()
        due = max(entry.touched, entry.told) + timeout <= now
        if due:
            entry.told = now
        self._due = min(self._due, (max(entry.touched, entry.told) + timeout) * _NS)
        return due
