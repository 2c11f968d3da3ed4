"""Live table of a switch's forwarding rates, and its totals."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING

from fanin.base.printable import terminal
from fanin.runs.output import table

if TYPE_CHECKING:
    from fanin.sim.switch.service.forwarding import Forwarding, PortCounters

#: Counters of the forwarding loop that belong to no port, and their meanings.
OTHER_COUNTERS = {
    "unconnected": "to ports without an interface",
    "to_controller": "to the controller",
    "no_controller": "of these, to an absent controller or one that does not read",
    "from_controller": "from the controller",
    "refused_from_controller": "of these, refused by the program",
    "failed": "frames and requests that met an internal error",
}
_PERIOD_SECONDS = 1.0
_UP, _CLEAR = "\033[{}A", "\033[J"


class Rates:
    """Frames and bits a second of each port, shown once a second in place."""

    def __init__(self, forwarding: Forwarding, names: Mapping[int, str], *, is_live: bool):
        self._forwarding = forwarding
        self._names = names
        self._is_live = is_live
        self._start = self._last = time.monotonic()
        self._previous: dict[int, tuple[int, ...]] = {}
        self._shown_lines = 0

    @property
    def seconds(self) -> float:
        """Seconds since this object was made."""
        return time.monotonic() - self._start

    def show(self) -> None:
        """Print the rates at most once every ``_PERIOD_SECONDS``, if the display is live."""
        now = time.monotonic()
        if not self._is_live or now - self._last < _PERIOD_SECONDS:
            return
        text = self._table(now - self._last)
        up = _UP.format(self._shown_lines) + _CLEAR if self._shown_lines else ""
        print(up, end="", file=terminal())
        print(text, file=sys.stderr, flush=True)
        self._shown_lines = text.count("\n") + 1
        self._last = now

    def _table(self, seconds: float) -> str:
        rows = [["port", "interface", "in/s", "Mb/s", "out/s", "Mb/s", "lost"]]
        for port, counters in self._forwarding.counters.items():
            values = astuple(counters)
            previous = self._previous.get(port, (0,) * len(values))
            per_second = [(v - b) / seconds for v, b in zip(values, previous, strict=True)]
            self._previous[port] = values
            frames_in, bytes_in, frames_out, bytes_out = per_second[:4]  # PortCounters begins with these
            received = [f"{frames_in:,.0f}", f"{bytes_in * 8e-6:,.1f}"]
            sent = [f"{frames_out:,.0f}", f"{bytes_out * 8e-6:,.1f}"]
            rows.append([str(port), self._names[port], *received, *sent, f"{lost_frames(counters):,}"])
        return table(rows, right=[0, 2, 3, 4, 5, 6])


def totals(forwarding: Forwarding, names: Mapping[int, str]) -> str:
    """Return the frames that each port forwarded and lost, and other losses, as tables."""
    rows = [["port", "interface", "frames in", "frames out", "lost"]]
    for port, counters in forwarding.counters.items():
        rows.append(
            [
                str(port),
                names[port],
                f"{counters.frames_in:,}",
                f"{counters.frames_out:,}",
                f"{lost_frames(counters):,}",
            ]
        )
    text = table(rows, right=[0, 2, 3, 4])
    reasons = {
        "refused by the program": "refused",
        "no room in the kernel's queue": "overrun",
        "of a form that no wire carries": "lost",
        "not taken by the interface": "unsent",
    }
    for meaning, name in reasons.items():
        counts = {port: getattr(c, name) for port, c in forwarding.counters.items() if getattr(c, name)}
        if counts:
            text += f"\n  {meaning}: " + ", ".join(f"port {port}: {n:,}" for port, n in counts.items())
    for name, meaning in OTHER_COUNTERS.items():
        if count := getattr(forwarding, name):
            text += f"\n  {meaning}: {count:,}"
    return text


def lost_frames(counters: PortCounters) -> int:
    """Return the number of a port's received frames that were not forwarded, for any reason."""
    return counters.refused + counters.overrun + counters.lost + counters.unsent
