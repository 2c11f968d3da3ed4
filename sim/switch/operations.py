"""Observer of aggregation: the time of each AllReduce, and the steps of each node's first one."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum

from fanin.sim.cosim.run import RunResult
from fanin.sim.cosim.watch import Watch
from fanin.wire import aggregation as wire
from fanin.wire.aggregation import ETHERTYPE_AGGREGATION, Encap, Kind, header_length
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP_PORT
from fanin.wire.fields import byte_length

_HEADER = struct.Struct(">BBHI")  # version and kind, job, slot, round
_ENCAPS = {ETHERTYPE_AGGREGATION: Encap.L2, ETHERTYPE_IPV4: Encap.UDP}
_UDP = byte_length(ETHERNET) + byte_length(IPV4)  # offset of the UDP header
_PROTOCOL = byte_length(ETHERNET) + 9  # offset of IPv4's protocol field
_PORTS = struct.Struct(">HH")

Operation = tuple[int, int, int]  # job, slot, round


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


@dataclass
class OperationTimes:
    """Times of a run's operations, in cycles.

    - ``allreduce_cycles``: per operation and node, from AGG leaves to RESULT is taken.
    - ``first_packet``: per node, the cycle of each step that its first operation reached.
    """

    allreduce_cycles: list[int] = field(default_factory=list)
    first_packet: list[dict[str, int]] = field(default_factory=list)


def times_of(result: RunResult) -> OperationTimes:
    """Return the times of a run's operations; empty if the run ended before it began."""
    return result.watched or OperationTimes()


class Operations(Watch):
    """Observer of aggregation packets. ``sent`` counts their kinds; any other frame is ``other``."""

    def __init__(self, nodes: int):
        super().__init__(nodes)
        self.allreduce_cycles: list[int] = []
        self._steps: list[dict[Step, int]] = [{} for _ in range(nodes)]
        self._sent_at: dict[tuple[int, Operation], int] = {}  # AGGs: node, operation → cycle
        self._in_flight: dict[int, tuple[int, int, Operation]] = {}  # tag → node, kind, operation

    @property
    def operations(self) -> int:
        """Number of RESULTs that nodes have taken."""
        return len(self.allreduce_cycles)

    def note_configured(self, cycle: int) -> None:
        """Note the end of a phase; the end of the first one is the nodes' configuration."""
        for steps in self._steps:
            steps.setdefault(Step.CONFIGURED, cycle)

    def note_sent(self, node: int, cycle: int, frame: bytes) -> None:
        """Count the frame; note when an AGG or an ACK left."""
        kind, operation = _operation(frame) or (-1, (0, 0, 0))
        self.sent[Kind(kind).name if kind in tuple(Kind) else "other"] += 1
        if kind == Kind.AGG:
            self._sent_at.setdefault((node, operation), cycle)
            self._steps[node].setdefault(Step.AGG_LEFT, cycle)
        elif kind == Kind.ACK:
            self._steps[node].setdefault(Step.ACK_LEFT, cycle)

    def note_reached(self, node: int, cycle: int) -> None:
        """Note the arrival of a node's first AGG; other traffic has no steps."""
        if Step.AGG_LEFT in self._steps[node]:
            self._steps[node].setdefault(Step.AGG_ARRIVED, cycle)

    def note_delivered(self, tag: int, node: int, frame: bytes) -> None:
        """Remember an aggregation packet until its node has taken it."""
        operation = _operation(frame)
        if operation is not None:
            self._in_flight[tag] = (node, *operation)

    def note_taken(self, tag: int, cycle: int) -> None:
        """Note when a RESULT or a CONFIRM was taken."""
        if tag not in self._in_flight:
            return
        node, kind, operation = self._in_flight.pop(tag)
        if kind == Kind.RESULT:
            self._steps[node].setdefault(Step.RESULT_ARRIVED, cycle)
            sent = self._sent_at.pop((node, operation), None)
            if sent is not None:
                self.allreduce_cycles.append(cycle - sent)
        elif kind == Kind.CONFIRM:
            self._steps[node].setdefault(Step.CONFIRM_ARRIVED, cycle)

    def result(self, end: int) -> OperationTimes:
        """Return the times, with the steps up to cycle ``end``."""
        first_packets = [
            {step.value: steps[step] for step in Step if step in steps and steps[step] <= end}
            for steps in self._steps
        ]
        return OperationTimes(self.allreduce_cycles, first_packets)


def _operation(frame: bytes) -> tuple[int, Operation] | None:
    """Return the kind and (job, slot, round) of an aggregation packet; None for other traffic."""
    encap = _ENCAPS.get(int.from_bytes(frame[12:14], "big"))
    if encap is None or len(frame) < (offset := header_length(encap)) + _HEADER.size:
        return None
    if encap is Encap.UDP and (
        frame[_PROTOCOL] != IP_PROTOCOL_UDP or UDP_PORT not in _PORTS.unpack_from(frame, _UDP)
    ):
        return None
    version_kind, job, slot, number = _HEADER.unpack_from(frame, offset)
    return version_kind & 15, (job, slot, number)
