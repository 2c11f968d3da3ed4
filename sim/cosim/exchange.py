"""Carrier of frames between the simulated nodes, through the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.state import LinkCut
from fanin.sim.cosim.watch import Watch
from fanin.sim.network import Network, Reception


class SentFrame(NamedTuple):
    """A frame that has left a node at a rising edge."""

    cycle: int
    node: int
    frame: bytes


class TakenFrame(NamedTuple):
    """A frame whose last beat a node has taken at a rising edge."""

    cycle: int
    tag: int


class ReceivedFrame(NamedTuple):
    """A frame that a node will receive: the last bit of its FCS arrives at ``time``, in ps."""

    node: int
    frame: bytes
    time: int
    error: bool
    tag: int


class Exchange:
    """Carrier of frames from node to node at their simulated times, by conservative lookahead.

    Results do not depend on when ``serve`` is called: they depend only on the edges at which frames have left
    and have been taken. ``watch`` observes the frames.
    """

    def __init__(self, network: Network, clock: Clock, watch: Watch):
        self._network, self._clock, self.watch = network, clock, watch
        self._next_tag = 0
        self._untaken: dict[int, int] = {}  # with an outside switch: per tag of a frame, the node that takes it

    def serve(
        self, edge: int, sent: Iterable[SentFrame], taken: Iterable[TakenFrame], cuts: Iterable[LinkCut] = ()
    ) -> list[ReceivedFrame]:
        """Carry frames as far as is certain at rising edge ``edge``; return the frames that nodes will receive.

        ``sent``, ``taken`` and ``cuts`` are all events since the last call, up to ``edge``, in any order.
        """
        received: list[ReceivedFrame] = []
        cycle = -1
        pending_taken, pending_cuts = deque(sorted(taken)), deque(sorted(cuts, key=attrgetter("cycle")))
        for cycle, frames in groupby(sorted(sent), key=attrgetter("cycle")):
            self._note_taken(pending_taken, cycle)
            received += self._cut(pending_cuts, cycle)
            received += self._catch_up(cycle - 1)
            for _, node, frame in frames:
                self._network.send(node, frame, self._clock.time(cycle))
                self.watch.note_sent(node, cycle, frame)
            received += self._advance(cycle)
        received += self._cut(pending_cuts, edge + 1)
        if cycle < edge:
            received += self._catch_up(edge)
        self._note_taken(pending_taken, edge + 1)
        return received

    def _cut(self, pending_cuts: deque[LinkCut], limit: int) -> list[ReceivedFrame]:
        """Cut or mend links before edge ``limit``, each after all traffic that is certain by then."""
        received: list[ReceivedFrame] = []
        while pending_cuts and pending_cuts[0].cycle < limit:
            cycle, node, peer, mends = pending_cuts.popleft()
            received += self._catch_up(cycle)
            if mends:
                self._network.mend(node)
            else:
                self._network.cut(node, peer)
        return received

    def _catch_up(self, cycle: int) -> list[ReceivedFrame]:
        """Advance the network at all edges up to ``cycle`` at which the switch has an event."""
        received: list[ReceivedFrame] = []
        while (alarm := self.alarm) is not None and alarm <= cycle:
            received += self._advance(alarm)
        return received

    def _advance(self, cycle: int) -> list[ReceivedFrame]:
        """Let the switch receive the frames whose arrival is certain when nodes are at a rising edge."""
        # No frame that leaves a node later can arrive before this horizon.
        horizon = self._clock.time(cycle + 1) + self._network.lookahead - 1
        return [self._deliver(reception) for reception in self._network.advance(horizon)]

    @property
    def alarm(self) -> int | None:
        """First edge whose horizon covers the next arrival at the switch; None if nothing is in flight."""
        arrival = self._network.next_time
        if arrival is None:
            return None
        return self._clock.edge(arrival - self._network.lookahead + 1) - 1

    @property
    def carries(self) -> bool:
        """Whether a frame is in flight to the switch."""
        return self._network.carries

    def before_skip(self) -> None:
        """Prepare for skipped time, which is allowed only while no frame is in flight."""
        self._note_arrivals()

    def watched(self, end: int) -> Any:
        """Return the result of the observation up to cycle ``end``."""
        self._note_arrivals()
        return self.watch.result(end)

    def _note_arrivals(self) -> None:
        clock = self._clock
        for node, arrival in enumerate(self._network.first_arrival):
            if arrival is not None:
                self.watch.note_reached(node, (arrival - clock.skipped_ps) // clock.period_ps)

    def _deliver(self, reception: Reception) -> ReceivedFrame:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        node, arrival = reception.port, reception.arrival
        if self._network.is_outside:
            self._untaken[tag] = node
            self._network.note_given(node)
        if not arrival.error:
            self.watch.note_delivered(tag, node, arrival.frame)
        return ReceivedFrame(node, arrival.frame, arrival.time, arrival.error, tag)

    def _note_taken(self, pending_taken: deque[TakenFrame], limit: int) -> None:
        """Report frames taken before edge ``limit`` to the watch, in order."""
        while pending_taken and pending_taken[0].cycle < limit:
            cycle, tag = pending_taken.popleft()
            self.watch.note_taken(tag, cycle)
            if self._network.is_outside:
                self._network.note_taken(self._untaken.pop(tag))
