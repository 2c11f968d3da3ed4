"""The timeline of ``fanin train``: micro-batches in the nodes, packets at the switch, AllReduces by slot."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.glm.page.page import stage_spans
from fanin.job import SWITCH
from fanin.report.perfetto import Trace
from fanin.sim.glm.result import TrainResult
from fanin.sim.network import LinkConfig
from fanin.wire.aggregation import AggPacket, Kind, decode_payload, header_length, payload_length

_STAGES = {"F": "forward", "C": "communication", "B": "backward"}
_MAC = 6  # bytes


def train_trace(result: TrainResult, frames: Iterable[tuple[int, bytes]]) -> str:
    """Return the trace of a run; ``frames`` are those at the switch, each with its time in nanoseconds.

    The trace has every micro-batch of the run's timeline, and the first ``MAX_EVENTS`` frames.
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
    _Packets(trace, result).add(trace.first("frames", frames))
    return trace.text()


class _Packets:
    """Adds packets on the switch's links to a trace, with their meaning in the protocol.

    The switch of a tree is its root, whose members are switches.
    """

    def __init__(self, trace: Trace, result: TrainResult):
        node, tree = result.training.node, result.training.network.tree
        self._own_mac = (tree.root.endpoint if tree else SWITCH).mac.to_bytes(_MAC, "big")
        members = [*zip(tree.root.part.members, tree.root.members, strict=True)] if tree else []
        names = [name if isinstance(name, str) else f"node {name}" for _, name in members]
        self._names = {member.endpoint.mac: name for (member, _), name in zip(members, names, strict=True)}
        self._bits = {member.bitmap: name for (member, _), name in zip(members, names, strict=True)}
        self._trace, self._header, self._values = trace, header_length(node.encap), node.values
        self._link: LinkConfig = result.training.network.link
        self._sent: set[tuple[Kind, int, int, int]] = set()  # packets from workers: kind, worker, slot, round
        self._start_times: dict[tuple[int, int], float] = {}  # start times of AllReduces by slot and round
        self._ended: set[tuple[int, int]] = set()

    def add(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Add all packets, in order of time. Other frames, which boards may send, are skipped."""
        for time, frame in frames:
            if len(frame) < self._header + payload_length(self._values):
                continue
            packet = decode_payload(frame[self._header :], self._values)
            if packet.kind not in list(Kind):
                continue
            wire_ns = self._link.wire_time(len(frame)) / 1000
            facts = {"slot": packet.slot, "round": packet.round, "bitmap": packet.bitmap}
            kind = Kind(packet.kind)
            if frame[:_MAC] == self._own_mac:
                sender = packet.bitmap.bit_length() - 1
                name = self._packet_name(kind, sender, packet, time)
                source = self._bits.get(packet.bitmap, f"node {sender}")
                # The capture time is that of the last bit received, or of the first bit sent.
                self._trace.slice("switch", f"from {source}", name, time - wire_ns, time, **facts)
            else:
                mac = int.from_bytes(frame[:_MAC], "big")
                target = self._names.get(mac, f"node {(mac & 0xFFFF) - 1}")
                self._end_allreduce(kind, packet, time)
                self._trace.slice("switch", f"to {target}", kind.name, time, time + wire_ns, **facts)

    def _packet_name(self, kind: Kind, worker: int, packet: AggPacket, time: float) -> str:
        """Return the display name of a worker's packet, marked if the packet is a repetition."""
        key = (kind, worker, packet.slot, packet.round)
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
                "AllReduce", f"slot {packet.slot}", f"round {packet.round}", self._start_times[key], time
            )
