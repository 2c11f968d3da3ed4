"""Frames between the simulated nodes and the network, and what can be learnt from watching them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Protocol

from fanin.sim.cosim.clock import Clock
from fanin.sim.network import Network
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import ETHERTYPE_AGGREGATION, Encap, Kind, header_length
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP_PORT
from fanin.wire.fields import byte_length

_HEADER = struct.Struct(">BBHI")  # version and kind, job, slot, round
_ENCAPS = {ETHERTYPE_AGGREGATION: Encap.L2, ETHERTYPE_IPV4: Encap.UDP}
_UDP = byte_length(ETHERNET) + byte_length(IPV4)  # where its header begins
_PROTOCOL = byte_length(ETHERNET) + 9  # where IPv4 names the protocol
_PORTS = struct.Struct(">HH")


class Step(StrEnum):
    """A step on the way of the first packet of a node, in order."""

    CONFIGURED = "configured"
    AGG_LEFT = "AGG left the node"
    AGG_ARRIVED = "AGG reached the switch"
    RESULT_ARRIVED = "RESULT arrived at the node"
    ACK_LEFT = "ACK left the node"
    CONFIRM_ARRIVED = "CONFIRM arrived at the node"


def steps_of(protocol: wire.Protocol) -> tuple[Step, ...]:
    """The steps of a protocol: all, or without acknowledgements all but the last two."""
    if protocol.acknowledges:
        return tuple(Step)
    return tuple(step for step in Step if step not in (Step.ACK_LEFT, Step.CONFIRM_ARRIVED))


class Top(Protocol):
    """What the exchange needs of the simulated top; see :class:`fanin.sim.cosim.library.Library`."""

    def frames(self) -> Iterable[tuple[int, int, bytes]]:
        """Frames that have left: (cycle, node, bytes)."""

    def push_frame(self, node: int, frame: bytes, time: int, *, error: bool, tag: int) -> None:
        """Let a node receive a frame."""

    def taken(self) -> Iterator[tuple[int, int]]:
        """Frames received: (tag, cycle)."""

    def set_alarm(self, cycle: int | None) -> None:
        """When to be woken at the latest."""

    def holds_frames(self) -> bool:
        """Whether a frame waits at a MAC or a host, or one is in flight to a node."""

    def skip(self, time_ps: int) -> None:
        """Let time pass without the clock."""


def _operation(frame: bytes) -> tuple[int, tuple[int, int, int]] | None:
    """Kind of an aggregation packet, and (job, slot, round); None for other traffic."""
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
    """Carries frames between top and network at their simulated times, by conservative lookahead.

    ``serve`` is called once per wake.
    """

    def __init__(self, top: Top, network: Network, clock: Clock, *, nodes: int):
        self._top, self._network, self._clock = top, network, clock
        self._sent_at: dict[tuple[int, tuple[int, int, int]], int] = {}  # of an AGG: node, operation → cycle
        self._in_flight: dict[int, tuple[int, int, tuple[int, int, int]]] = {}  # tag → node, kind, operation
        self._next_tag = 0
        self.allreduce_cycles: list[int] = []
        self.sent: Counter[str] = Counter()
        self.steps: list[dict[Step, int]] = [{} for _ in range(nodes)]

    def serve(self, now: int) -> None:
        """Carry every frame as far as is certain at rising edge ``now``, and set the alarm for the next one."""
        for cycle, node, frame in sorted(self._top.frames()):
            self._network.send(node, frame, self._clock.time(cycle))
            self._note_sent(node, cycle, frame)
        # No frame that has yet to leave a node can reach the switch up to here.
        horizon = self._clock.time(now + 1) + self._network.lookahead - 1
        for reception in self._network.advance(horizon):
            self._hand_in(
                reception.port, reception.arrival.frame, reception.arrival.time, reception.arrival.error
            )
        for tag, cycle in self._top.taken():
            self._note_taken(tag, cycle)
        self._top.set_alarm(self.alarm)

    @property
    def alarm(self) -> int | None:
        """The first edge whose horizon covers the next arrival at the switch."""
        arrival = self._network.next_time
        if arrival is None:
            return None
        return self._clock.edge(arrival - self._network.lookahead + 1) - 1

    @property
    def carries(self) -> bool:
        """Whether any frame is in flight, or still at a MAC or a host."""
        return self._network.carries or self._top.holds_frames()

    def cut(self, node: int, peer: int | None = None) -> None:
        """From now on a node's link drops every frame, both ways; with ``peer``, those between the two."""
        self._network.cut(node, peer)

    def skip(self, time_ps: int) -> None:
        """Let time pass without the clock; only while no frame is in flight, which would arrive too late."""
        self._note_arrivals()
        self._clock.skipped_ps += time_ps
        self._top.skip(time_ps)

    def first_packets(self) -> list[dict[str, int]]:
        """Per node, the cycle in which its first packet reached each step, as far as it came."""
        self._note_arrivals()
        return [{step.value: steps[step] for step in Step if step in steps} for steps in self.steps]

    def _note_arrivals(self) -> None:
        clock = self._clock
        for steps, arrival in zip(self.steps, self._network.first_arrival, strict=True):
            if arrival is not None and Step.AGG_LEFT in steps:  # other traffic has no steps
                steps.setdefault(Step.AGG_ARRIVED, (arrival - clock.skipped_ps) // clock.period_ps)

    def _hand_in(self, node: int, frame: bytes, time: int, error: bool) -> None:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        operation = None if error else _operation(frame)
        if operation is not None:
            self._in_flight[tag] = (node, *operation)
        self._top.push_frame(node, frame, time, error=error, tag=tag)

    def _note_sent(self, node: int, cycle: int, frame: bytes) -> None:
        kind, operation = _operation(frame) or (-1, (0, 0, 0))
        self.sent[Kind(kind).name if kind in tuple(Kind) else "other"] += 1
        if kind == Kind.AGG:
            self._sent_at.setdefault((node, operation), cycle)
            self.steps[node].setdefault(Step.AGG_LEFT, cycle)
        elif kind == Kind.ACK:
            self.steps[node].setdefault(Step.ACK_LEFT, cycle)

    def _note_taken(self, tag: int, cycle: int) -> None:
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
