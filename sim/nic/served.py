"""What a NIC between two interfaces has done, in RTL or as its twin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Served:
    """What a NIC has done: its counters by name, segments that it was kept off, times in seconds.

    ``lost``: frames that the interfaces had no room for. The twin has no time of its own.
    """

    counters: dict[str, int]
    unaligned: int
    lost: int
    seconds: float
    simulated_seconds: float | None
