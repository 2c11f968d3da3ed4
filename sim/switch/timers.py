"""Retransmission timers of a worker, by slot, in simulated time (docs/systems/aggregation.md, "Timers")."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fanin.base.limits import CLOCK_MHZ
from fanin.golden.round_trip import RoundTrip
from fanin.sim.network import NetworkConfig
from fanin.wire.aggregation import Kind

_PS = round(1e6 / CLOCK_MHZ)  # of a cycle


@dataclass
class _Timer:
    """Timer of a slot's packet: when it was ``sent`` last, in ps, and its ``delay`` in cycles."""

    sent: int
    delay: int
    retries: int = 0


class Timers:
    """Timers of all slots of a worker.

    - ``deadlines``: end of each running timer, in ps, by slot.
    - ``unscheduled``: deadlines that the event loop has not taken yet.
    """

    def __init__(self, network: NetworkConfig):
        ceiling = math.ceil(network.ceiling_ns * 1000 / _PS)
        self._trip = RoundTrip(ceiling, adaptive=network.adaptive)
        self._timers: dict[int, _Timer] = {}
        self.deadlines: dict[int, int] = {}
        self.unscheduled: dict[int, int] = {}

    def start(self, slot: int, now: int) -> None:
        """Start the timer of a packet that is sent for the first time."""
        self._start(slot, _Timer(now, self._trip.timeout))

    def restart(self, slot: int, now: int) -> None:
        """Start the timer of a retransmission, with twice the previous delay."""
        timer = self._timers[slot]
        self._trip.retransmission()
        self._start(slot, _Timer(now, self._trip.backed_off(timer.delay), timer.retries + 1))

    def stop(self, slot: int, answer: Kind, now: int) -> None:
        """Stop the timer of a slot, if one runs. A RESULT of an AGG sent once is a sample."""
        timer = self._timers.pop(slot, None)
        self.deadlines.pop(slot, None)
        if timer and not timer.retries and answer is Kind.RESULT:
            self._trip.sample((now - timer.sent) // _PS)

    def _start(self, slot: int, timer: _Timer) -> None:
        self._timers[slot] = timer
        self.deadlines[slot] = self.unscheduled[slot] = timer.sent + timer.delay * _PS
