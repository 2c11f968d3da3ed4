"""Retransmission timers of a worker, by slot, in simulated time (docs/systems/aggregation.md, "Timers")."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fanin.base.limits import CLOCK_MHZ
from fanin.golden.round_trip import FLOOR_CYCLES, RoundTrip
from fanin.sim.network import NetworkConfig
from fanin.wire.aggregation import Kind

_PS = round(1e6 / CLOCK_MHZ)  # of a cycle
_SENT = {Kind.RESULT: Kind.AGG, Kind.CONFIRM: Kind.ACK}  # packet by its answer


@dataclass
class _Timer:
    """Timer of a slot's packet. ``sent`` and ``deadline`` are in ps, ``delay`` in cycles."""

    kind: Kind
    operation: int
    sent: int
    delay: int
    retries: int = 0

    @property
    def deadline(self) -> int:
        return self.sent + self.delay * _PS


class Timers:
    """Timers of all slots of a worker. ``deadlines``, in ps, by slot; ``changed``: those not yet scheduled."""

    def __init__(self, network: NetworkConfig):
        most = math.ceil(network.most_timeout_ns * 1000 / _PS)
        self._trips = {
            kind: RoundTrip(least=FLOOR_CYCLES, most=most, adaptive=network.adaptive) for kind in _SENT.values()
        }
        self._timers: dict[int, _Timer] = {}
        self.deadlines: dict[int, int] = {}
        self.changed: dict[int, int] = {}

    def sent(self, slot: int, kind: Kind, operation: int, now: int) -> None:
        """Start the timer of a packet that is sent for the first time."""
        timer = _Timer(kind, operation, now, self._trips[kind].timeout)
        self._timers[slot] = timer
        self._set(slot, timer.deadline)

    def sent_again(self, slot: int, now: int) -> None:
        """Start the timer of a retransmission: it waits twice as long."""
        timer = self._timers[slot]
        timer.delay = self._trips[timer.kind].backed_off(timer.delay)
        timer.sent, timer.retries = now, timer.retries + 1
        self._set(slot, timer.deadline)

    def operation(self, slot: int) -> int:
        """Return the operation of the last packet of a slot; −1 if no answer is awaited."""
        return self._timers[slot].operation if slot in self._timers else -1

    def answered(self, slot: int, answer: Kind, now: int) -> None:
        """Stop the timer of a slot. A RESULT makes the timers of older operations end a slack earlier."""
        timer = self._timers.pop(slot)
        self.deadlines.pop(slot, None)
        trip = self._trips[_SENT[answer]]
        if not timer.retries:
            trip.sample((now - timer.sent) // _PS)
        if answer is Kind.RESULT and trip.slack:
            for other, overtaken in self._timers.items():
                if (
                    overtaken.kind is Kind.AGG
                    and not overtaken.retries
                    and overtaken.operation < timer.operation
                ):
                    self._set(other, max(now, overtaken.deadline - trip.slack * _PS))

    def _set(self, slot: int, deadline: int) -> None:
        self.deadlines[slot] = self.changed[slot] = deadline
