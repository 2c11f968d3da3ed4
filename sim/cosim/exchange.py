"""Frames between the simulated nodes, through the network, and statistics of aggregation packets."""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.state import Cut
from fanin.sim.network import Network, Reception
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import ETHERTYPE_AGGREGATION, Encap, Kind, header_length
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP_PORT
from fanin.wire.fields import byte_length

_HEADER = struct.Struct(">BBHI")  # version and kind, job, slot, round
_ENCAPS = {ETHERTYPE_AGGREGATION: Encap.L2, ETHERTYPE_IPV4: Encap.UDP}
_UDP = byte_length(ETHERNET) + byte_length(IPV4)  # offset of the UDP header
_PROTOCOL = byte_length(ETHERNET) + 9  # offset of IPv4's protocol field
_PORTS = struct.Struct(">HH")


class Step(StrEnum):
    """Steps of a node's first operation, in order."""

    CONFIGURED = "configured"
    AGG_LEFT = "AGG left the node"
    AGG_ARRIVED = "AGG reached the switch"
    RESULT_ARRIVED = "RESULT arrived at the node"
    ACK_LEFT = "ACK left the node"
    CONFIRM_ARRIVED = "CONFIRM arrived at the node"


def steps_of(protocol: wire.Protocol) -> tuple[Step, ...]:
    """Return the steps of a protocol; without acknowledgements, all except the last two."""
    if protocol.acknowledges:
        return tuple(Step)
    return tuple(step for step in Step if step not in (Step.ACK_LEFT, Step.CONFIRM_ARRIVED))


class Sent(NamedTuple):
    """A frame that has left a node at a rising edge."""

    cycle: int
    node: int
    frame: bytes


class Taken(NamedTuple):
    """A frame whose last beat a node has taken at a rising edge."""

    cycle: int
    tag: int


class Received(NamedTuple):
    """A frame that a node will receive: the last bit of its FCS arrives at ``time``, in ps."""

    node: int
    frame: bytes
    time: int
    error: bool
    tag: int


def _operation(frame: bytes) -> tuple[int, tuple[int, int, int]] | None:
    """Return the kind and (job, slot, round) of an aggregation packet; None for other traffic."""
    encap = _ENCAPS.get(int.from_bytes(frame[12:14], "big"))
    if encap is None or len(frame) < (offset := header_length(encap)) + _HEADER.size:
        return None
    if encap is Encap.UDP and (
        frame[_PROTOCOL] != IP_PROTOCOL_UDP or UDP_PORT not in _PORTS.unpack_from(frame, _UDP)
    ):
        return None
    head, job, slot, number = _HEADER.unpack_from(frame, offset)
    return head & 15, (job, slot, number)


class Exchange:
    """Carrier of frames from node to node at their simulated times, by conservative lookahead.

    The times of calls of ``serve`` do not matter: its results depend only on the edges at which frames have
    left and have been taken.
    """

    def __init__(self, network: Network, clock: Clock, *, nodes: int):
        self._network, self._clock = network, clock
        self._sent_at: dict[tuple[int, tuple[int, int, int]], int] = {}  # AGGs: node, operation → cycle
        self._in_flight: dict[int, tuple[int, int, tuple[int, int, int]]] = {}  # tag → node, kind, operation
        self._next_tag = 0
        self.allreduce_cycles: list[int] = []
        self.sent: Counter[str] = Counter()
        self.steps: list[dict[Step, int]] = [{} for _ in range(nodes)]

    def serve(
        self, now: int, sent: Iterable[Sent], taken: Iterable[Taken], cuts: Iterable[Cut] = ()
    ) -> list[Received]:
        """Carry frames as far as is certain at rising edge ``now``; return the frames that nodes will receive.

        ``sent``, ``taken`` and ``cuts`` are all events since the last call, in any order.
        """
        received: list[Received] = []
        cycle = -1
        noted, ends = deque(sorted(taken)), deque(sorted(cuts, key=attrgetter("cycle")))
        for cycle, frames in groupby(sorted(sent), key=attrgetter("cycle")):
            self._note_taken(noted, cycle)
            received += self._cut(ends, cycle)
            received += self._catch_up(cycle - 1)
            for _, node, frame in frames:
                self._network.send(node, frame, self._clock.time(cycle))
                self._note_sent(node, cycle, frame)
            received += self._advance(cycle)
        received += self._cut(ends, now + 1)
        if cycle < now:
            received += self._catch_up(now)
        self._note_taken(noted, now + 1)
        return received

    def _cut(self, ends: deque[Cut], until: int) -> list[Received]:
        """Cut or mend links before an edge, each after all traffic that is certain by then is carried."""
        received: list[Received] = []
        while ends and ends[0].cycle < until:
            cycle, node, peer, mends = ends.popleft()
            received += self._catch_up(cycle)
            if mends:
                self._network.mend(node)
            else:
                self._network.cut(node, peer)
        return received

    def _catch_up(self, cycle: int) -> list[Received]:
        """Advance the network at all edges up to ``cycle`` at which the switch has an event."""
        received: list[Received] = []
        while (alarm := self.alarm) is not None and alarm <= cycle:
            received += self._advance(alarm)
        return received

    def _advance(self, cycle: int) -> list[Received]:
        """Let the switch receive the frames whose arrival is certain when nodes are at a rising edge."""
        # No frame that leaves a node later can arrive before this horizon.
        horizon = self._clock.time(cycle + 1) + self._network.lookahead - 1
        return [self._hand_in(reception) for reception in self._network.advance(horizon)]

    @property
    def alarm(self) -> int | None:
        """First edge whose horizon covers the next arrival at the switch."""
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

    def note_configured(self, cycle: int) -> None:
        """Note the end of a phase; the end of the first one is the nodes' configuration."""
        for steps in self.steps:
            steps.setdefault(Step.CONFIGURED, cycle)

    def first_packets(self, end: int) -> list[dict[str, int]]:
        """Return, per node, the cycle at which its first operation reached each step, up to cycle ``end``."""
        self._note_arrivals()
        return [
            {step.value: steps[step] for step in Step if step in steps and steps[step] <= end}
            for steps in self.steps
        ]

    def _note_arrivals(self) -> None:
        clock = self._clock
        for steps, arrival in zip(self.steps, self._network.first_arrival, strict=True):
            if arrival is not None and Step.AGG_LEFT in steps:  # other traffic has no steps
                steps.setdefault(Step.AGG_ARRIVED, (arrival - clock.skipped_ps) // clock.period_ps)

    def _hand_in(self, reception: Reception) -> Received:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        node, arrival = reception.port, reception.arrival
        operation = None if arrival.error else _operation(arrival.frame)
        if operation is not None:
            self._in_flight[tag] = (node, *operation)
        return Received(node, arrival.frame, arrival.time, arrival.error, tag)

    def _note_sent(self, node: int, cycle: int, frame: bytes) -> None:
        kind, operation = _operation(frame) or (-1, (0, 0, 0))
        self.sent[Kind(kind).name if kind in tuple(Kind) else "other"] += 1
        if kind == Kind.AGG:
            self._sent_at.setdefault((node, operation), cycle)
            self.steps[node].setdefault(Step.AGG_LEFT, cycle)
        elif kind == Kind.ACK:
            self.steps[node].setdefault(Step.ACK_LEFT, cycle)

    def _note_taken(self, noted: deque[Taken], until: int) -> None:
        """Note frames taken before an edge, in order."""
        while noted and noted[0].cycle < until:
            self._note_one(*noted.popleft())

    def _note_one(self, cycle: int, tag: int) -> None:
        if tag not in self._in_flight:
            return
        node, kind, operation = self._in_flight.pop(tag)
        if kind == Kind.RESULT:
            self.steps[node].setdefault(Step.RESULT_ARRIVED, cycle)
            sent = self._sent_at.pop((node, operation), None)
            if sent is not None:
                self.allreduce_cycles.append(cycle - sent)
        elif kind == Kind.CONFIRM:
            self.steps[node].setdefault(Step.CONFIRM_ARRIVED, cycle)
