"""Result of a served NIC, in RTL or as its model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NicResult:
    """Counters and times of a NIC that served Linux interfaces until it was stopped.

    - ``counters``: counters by name.
    - ``unaligned``: segments with partial values, which the NIC did not compress.
    - ``lost``: frames that the interfaces dropped.
    - ``seconds``: seconds of the wall clock.
    - ``simulated_seconds``: simulated seconds; None for the model, which has no simulated time.
    """

    counters: dict[str, int]
    unaligned: int
    lost: int
    seconds: float
    simulated_seconds: float | None
