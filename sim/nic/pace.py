"""Pace of simulated time against the wall clock, for nodes whose peers are outside the simulation."""

from __future__ import annotations

import selectors
import time

BUSY_PS = 1_000_000  #: interval to the next poll after a poll that found frames, in simulated ps
IDLE_PS = 20_000_000  #: longest interval; it doubles from ``BUSY_PS`` while nothing arrives
MAX_SLOWDOWN = 1e5  # a wait then takes two seconds and cannot be interrupted
_MAX_LAG_S = 0.1  # a longer lag is given up, since the simulation would catch up at full speed


class Pace:
    """Limiter of simulated time: one simulated second takes at least ``slowdown`` seconds.

    The simulator may be slower; ``slipped`` is its lag in seconds that was given up. A Pace is made in one
    process and used in another; its clock starts at the first wait.
    """

    def __init__(self, slowdown: float):
        if not 1 <= slowdown <= MAX_SLOWDOWN:
            raise ValueError(f"slowdown must be 1 to {MAX_SLOWDOWN:g}, not {slowdown!r}")
        self.slowdown = slowdown
        self.slipped = 0.0
        self._start: float | None = None
        self._selector: selectors.BaseSelector | None = None

    def watch(self, descriptor: int) -> None:
        """Let input at a descriptor end the interruptible part of a wait, from now on."""
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, time_ps: int, interruptible_ps: int) -> None:
        """Wait until simulated time ``time_ps``; a frame ends the wait in its last ``interruptible_ps``."""
        now = time.monotonic()
        if self._start is None:
            self._start = now
        wake_time = self._start + self.slipped + time_ps * 1e-12 * self.slowdown
        if now - wake_time > _MAX_LAG_S:
            self.slipped += now - wake_time
            return
        interruptible = interruptible_ps * 1e-12 * self.slowdown
        if wake_time - interruptible > now:
            time.sleep(wake_time - interruptible - now)
        remaining = max(wake_time - time.monotonic(), 0.0)
        if self._selector is not None and remaining:
            self._selector.select(remaining)
