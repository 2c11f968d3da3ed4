"""Simulated time beside the wall clock, for nodes whose peers are outside the simulation."""

from __future__ import annotations

import selectors
import time

BUSY_PS = 1_000_000  #: until the next look for what comes from outside, behind one that found some
IDLE_PS = 20_000_000  #: the same at most; it doubles while nothing comes
MAX_SLOWDOWN = 1e5  # a wait takes two seconds then, and nothing else ends it
_SLIP_S = 0.1  # behind by more, and the lag is given up: it would be caught up with at full speed


class Pace:
    """A second of simulated time takes ``slowdown`` seconds at least.

    The simulator may be slower; ``slipped`` is by how many seconds. Made in one process and used in another:
    the clock starts at the first call.
    """

    def __init__(self, slowdown: float):
        if not 1 <= slowdown <= MAX_SLOWDOWN:
            raise ValueError(f"slowdown must be 1 to {MAX_SLOWDOWN:g}, not {slowdown!r}")
        self.slowdown = slowdown
        self.slipped = 0.0
        self._start: float | None = None
        self._selector: selectors.BaseSelector | None = None

    def watch(self, descriptor: int) -> None:
        """From now on, what is readable there ends the last part of a wait."""
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, time_ps: int, early_ps: int) -> None:
        """Wait until that time has come, or from ``early_ps`` before it on until a frame has."""
        now = time.monotonic()
        if self._start is None:
            self._start = now
        due = self._start + self.slipped + time_ps * 1e-12 * self.slowdown
        if now - due > _SLIP_S:
            self.slipped += now - due
            return
        early = early_ps * 1e-12 * self.slowdown
        if due - early > now:
            time.sleep(due - early - now)
        rest = max(due - time.monotonic(), 0.0)
        if self._selector is not None and rest:
            self._selector.select(rest)
