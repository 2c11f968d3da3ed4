"""The timeline of ``fanin train``: micro-batches in the nodes, packets at the switch, AllReduces by slot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import repeat
from typing import NamedTuple

from fanin.glm.page.page import stage_spans
from fanin.job import SWITCH
from fanin.link import LinkConfig
from fanin.report.perfetto import Trace
from fanin.sim.glm.result import TrainResult
from fanin.tree import Tree, TreeSwitch
from fanin.wire.aggregation import AggPacket, Kind, decode_payload, header_length, payload_length

_STAGES = {"F": "forward", "C": "communication", "B": "backward"}
_MAC = 6  # bytes


def train_trace(result: TrainResult, captures: Sequence[Iterable[tuple[int, bytes]]]) -> str:
    """Return the trace of a run.

    The trace has every micro-batch of the run's timeline, and the first ``MAX_EVENTS`` frames at switches.

    - ``captures``: frames in order of time, each with its time in nanoseconds: at each switch of a tree, in
      their order, else one capture at the switch, or at Linux interfaces.
    """
    trace = Trace()
    training, timeline = result.training, result.run.timeline
    if timeline is not None:
        cycle_ns = 1000 / training.clock_mhz
        workers = training.network.here or range(training.workers)
        for span in stage_spans(timeline, result.shape.micro_batches, nodes=len(workers)):
            if span.stage == "C" and result.shape.data_parallel:
                continue  # these send gradients, not micro-batches
            name = f"{span.mini_batch + 1}.{span.micro_batch + 1}"
            trace.slice(
                f"node {workers[span.node]}",
                _STAGES[span.stage],
                name,
                span.start * cycle_ns,
                span.end * cycle_ns,
            )
    tree = training.network.tree
    switches = [_Packets(trace, result, each) for each in (tree.switches if tree else [None])]
    for each in reversed(tree.switches if tree else []):  # leaves are next to the nodes, the root is last
        trace.declare(each.name)
    for time, frame, number in trace.first("frames", _by_switch(captures, tree)):
        switches[number].add(time, frame)
    return trace.text()


def _by_switch(
    captures: Sequence[Iterable[tuple[int, bytes]]], tree: Tree | None
) -> Iterator[tuple[int, bytes, int]]:
    """Yield all frames in order of time: time, frame, number of the switch."""
    if not tree or len(captures) > 1:
        captured = (zip(frames, repeat(number)) for number, frames in enumerate(captures))
        for (time, frame), number in merge(*captured, key=lambda pair: pair[0][0]):
            yield time, frame, number
        return
    owners: dict[int, int] = {}  # at interfaces: the switch by the address to which a frame goes
    for number, each in enumerate(tree.switches):
        workers = zip(each.part.members, each.members, strict=True)
        owners |= {member.endpoint.mac: number for member, name in workers if isinstance(name, int)}
        owners[each.endpoint.mac] = number
    for time, frame in captures[0]:
        yield time, frame, owners.get(int.from_bytes(frame[:_MAC], "big"), 0)


class _Peer(NamedTuple):
    """Member or parent of a switch: name, and the link between both."""

    name: str
    link: LinkConfig

    def wire_ns(self, frame: bytes) -> float:
        """Return the time of a frame on the link."""
        return self.link.wire_time(len(frame)) / 1000


class _Packets:
    """Adds the packets at a switch to a trace, with their meaning in the protocol.

    - ``each``: the switch of a tree; None: a single one.
    """

    def __init__(self, trace: Trace, result: TrainResult, each: TreeSwitch | None):
        network, node = result.training.network, result.training.node
        self._trace, self._header, self._values = trace, header_length(node.encap), node.values
        self._process, self._sums = "switch", "AllReduce"
        self._own_mac, self._link = SWITCH.mac, network.link
        self._members: dict[int, _Peer] = {}  # by bit
        self._peers: dict[int, _Peer] = {}  # by MAC; others are workers with default addresses
        self._parent: _Peer | None = None
        if each and network.tree:
            self._process, self._own_mac = each.name, each.endpoint.mac
            if each.part.uplink:
                self._sums = f"AllReduce at {each.name}"
            self._add_peers(each, network.tree)
        self._sent: set[tuple[Kind, str, int, int]] = set()  # packets from members: kind, member, slot, round
        self._start_times: dict[tuple[int, int], float] = {}  # start times of AllReduces by slot and round
        self._ended: set[tuple[int, int]] = set()

    def _add_peers(self, each: TreeSwitch, tree: Tree) -> None:
        switches = {switch.name: switch for switch in tree.switches}
        for member, name in zip(each.part.members, each.members, strict=True):
            peer = _Peer(f"node {name}", self._link)
            if isinstance(name, str):
                peer = _Peer(name, switches[name].trunk(self._link))
            self._members[member.bitmap] = self._peers[member.endpoint.mac] = peer
        if uplink := each.part.uplink:
            (parent,) = (switch for switch in tree.switches if each.name in switch.members)
            self._peers[uplink.endpoint.mac] = _Peer(parent.name, each.trunk(self._link))
            self._parent = self._peers[uplink.endpoint.mac]

    def add(self, time: int, frame: bytes) -> None:
        """Add a packet, in order of time. Other frames, which boards may send, are skipped."""
        if len(frame) < self._header + payload_length(self._values):
            return
        packet = decode_payload(frame[self._header :], self._values)
        if packet.kind not in list(Kind):
            return
        facts = {"slot": packet.slot, "round": packet.round, "bitmap": packet.bitmap}
        kind, mac = Kind(packet.kind), int.from_bytes(frame[:_MAC], "big")
        if mac == self._own_mac:
            source = self._source(kind, packet)
            name = self._packet_name(kind, source.name, packet, time)
            # The capture time is that of the last bit received, or of the first bit sent.
            begin = time - source.wire_ns(frame)
            self._trace.slice(self._process, f"from {source.name}", name, begin, time, **facts)
        else:
            target = self._peers.get(mac) or _Peer(f"node {(mac & 0xFFFF) - 1}", self._link)
            self._end_allreduce(kind, packet, time)
            end = time + target.wire_ns(frame)
            self._trace.slice(self._process, f"to {target.name}", kind.name, time, end, **facts)

    def _source(self, kind: Kind, packet: AggPacket) -> _Peer:
        """Return the sender of a packet to the switch."""
        if kind in (Kind.RESULT, Kind.CONFIRM) and self._parent:
            return self._parent
        worker = packet.bitmap.bit_length() - 1
        return self._members.get(packet.bitmap) or _Peer(f"node {worker}", self._link)

    def _packet_name(self, kind: Kind, sender: str, packet: AggPacket, time: float) -> str:
        """Return the display name of a packet to the switch, marked if the packet is a repetition."""
        key = (kind, sender, packet.slot, packet.round)
        is_repeated = key in self._sent
        self._sent.add(key)
        if kind is Kind.AGG:
            self._start_times.setdefault((packet.slot, packet.round), time)
        return f"{kind.name} again" if is_repeated else kind.name

    def _end_allreduce(self, kind: Kind, packet: AggPacket, time: float) -> None:
        """End the AllReduce of a round at its first RESULT."""
        key = packet.slot, packet.round
        if kind is Kind.RESULT and key not in self._ended and key in self._start_times:
            self._ended.add(key)
            self._trace.slice(
                self._sums, f"slot {packet.slot}", f"round {packet.round}", self._start_times[key], time
            )
