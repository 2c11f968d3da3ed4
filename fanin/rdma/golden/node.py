"""Golden model of the node of one-sided writes, frame by frame: queue pairs at one MAC and IPv4 address.

Contract: docs/systems/rdma.md, "Packets". The node connects the packets of :mod:`fanin.rdma.golden.nic` with a
wire. It drops frames without an acceptable packet and counts them by cause, as the node's registers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fanin.rdma.facts import DROPPED, FIRST_QUEUE_PAIR, Connection, Region, Write
from fanin.rdma.golden.nic import Requester, Responder
from fanin.wire.ethernet import IPV4, MIN_FRAME_BYTES, Endpoint, tagged, untagged
from fanin.wire.fields import unpack_fields
from fanin.wire.rdma import IP_AT, Fault, Opcode, RdmaPacket, encode, judge


@dataclass(frozen=True)
class _Pair:
    """A queue pair, and the destination of its packets."""

    peer: Endpoint
    requester: Requester
    responder: Responder


class Node:
    """Model of a node: frames in, frames out. ``tags``: as ``RdmaConfig.vlan``.

    - ``own``: MAC and IPv4 address of the node.
    - ``memory``: memory of the node, read and written in place.
    - ``regions``: memory that peers may write.
    - ``counters``: dropped frames by cause.
    """

    def __init__(self, own: Endpoint, memory: bytearray, regions: Sequence[Region] = (), *, tags: bool = True):
        self.own = own
        self.memory = memory
        self.tags = tags
        self.regions = list(regions)
        self.counters: Counter[str] = Counter()
        self._pairs: dict[int, _Pair] = {}
        self._answers: list[bytes] = []

    def connect(self, index: int, connection: Connection, peer: Endpoint) -> None:
        """Connect queue pair ``index`` anew with number ``connection.peer`` at ``peer``.

        ``peer.port`` is the UDP port that this node sends from. Raises ValueError for a VLAN if the node has no
        tags.
        """
        if connection.vlan is not None and not self.tags:
            raise ValueError(f"vlan {connection.vlan}: this node has no tags (RdmaConfig.vlan)")
        number = FIRST_QUEUE_PAIR + index
        responder = Responder(number, connection, self.memory, self.regions)
        self._pairs[number] = _Pair(peer, Requester(connection, self.memory), responder)

    def requester(self, index: int) -> Requester:
        """Return the sending half of a queue pair, with its completions."""
        return self._pairs[FIRST_QUEUE_PAIR + index].requester

    def responder(self, index: int) -> Responder:
        """Return the receiving half of a queue pair, with its messages with immediate data."""
        return self._pairs[FIRST_QUEUE_PAIR + index].responder

    def post(self, index: int, write: Write) -> None:
        """Post a write on a queue pair."""
        self.requester(index).post(write)

    def timeout(self, index: int | None = None) -> None:
        """Report a timeout since the last progress of queue pair ``index``, or of every queue pair."""
        for pair in self._pairs.values() if index is None else [self._pairs[FIRST_QUEUE_PAIR + index]]:
            pair.requester.timeout()

    def receive(self, frame: bytes) -> RdmaPacket | None:
        """Handle a frame; return its packet, or None if dropped. An answer is queued for ``answers``."""
        packet = self._judge(frame)
        if isinstance(packet, Fault):
            self.counters[DROPPED[packet]] += 1
            return None
        pair = self._pairs[packet.queue_pair]
        if packet.opcode == Opcode.ACKNOWLEDGE:
            pair.requester.receive(packet)
        elif answer := pair.responder.receive(packet):
            self._answers.append(self._frame(pair, answer))
        return packet

    def frames(self) -> Iterator[bytes]:
        """Yield the frames to send now, answers first."""
        yield from self.answers()
        yield from self.requests()

    def answers(self) -> list[bytes]:
        """Return the queued answers to received packets."""
        answers, self._answers = self._answers, []
        return answers

    def requests(self) -> Iterator[bytes]:
        """Yield the frames that its writes may send now."""
        for pair in self._pairs.values():
            yield from (self._frame(pair, packet) for packet in pair.requester.packets())

    def _judge(self, frame: bytes) -> RdmaPacket | Fault:
        """Return the packet of a frame for a queue pair, or its fault.

        A frame must end with its ICRC or be padded to 60 bytes.
        """
        frame = untagged(frame) if self.tags else frame
        judged = judge(frame, own=self.own)
        if judged is Fault.FOREIGN:
            return judged
        end = IP_AT + unpack_fields(IPV4, frame[IP_AT:])["length"]
        if len(frame) not in (end, max(MIN_FRAME_BYTES, end)):
            return Fault.DAMAGED
        if isinstance(judged, RdmaPacket):
            pair = self._pairs.get(judged.queue_pair)
            if pair is None or (judged.opcode != Opcode.ACKNOWLEDGE and pair.responder.failed):
                return Fault.UNKNOWN
        return judged

    def _frame(self, pair: _Pair, packet: RdmaPacket) -> bytes:
        source = Endpoint(self.own.mac, self.own.ip, pair.peer.port)
        connection = pair.requester.connection
        frame = encode(packet, source=source, destination=pair.peer, tos=connection.traffic_class)
        return (
            frame
            if connection.vlan is None
            else tagged(frame, vlan=connection.vlan, priority=connection.priority)
        )
