"""Timeout after which a connection retransmits: longer than any answer takes if no frame is lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from fanin.cnn.parts import Part
from fanin.hdl.layers.registers import ACK_DELAY, network_ends
from fanin.link import LinkConfig
from fanin.sim.cosim.clock import bytes_a_cycle
from fanin.wire.connection import MAC_WIDTH, MAX_PAYLOAD_WORDS, RowFrames
from fanin.wire.ethernet import AROUND_FRAME, Encap
from fanin.wire.link import LINK_CONTROL_BYTES

PIPELINES = 32  # cycles in both nodes: from a buffered frame to its beats, and from its last beat to the ACK's
_ACK_BYTES = LINK_CONTROL_BYTES + AROUND_FRAME  # bytes of an ACK on the wire, with the gap


def link_timeout(
    parts: Sequence[Part], *, link: LinkConfig, switch_ns: float, period_ps: int, encap: Encap
) -> int:
    """Return the timeout of a cluster's links in cycles, by docs/systems/link.md, "How long to wait"."""
    devices: dict[int, list[str]] = defaultdict(list)
    for part in parts:
        for connection in part.ends.values():
            devices[connection.number].append(part.device)
    longest_round = longest_queue = 0
    for part in parts:
        by_peer: dict[str, int] = defaultdict(int)
        round_bytes = 0
        for index in network_ends(part.network):
            shape = part.network.stages[index].layer.output
            row = RowFrames(shape.w * shape.c, MAC_WIDTH)
            size = _exchange_bytes(row, encap)
            (peer,) = (device for device in devices[part.ends[index].number] if device != part.device)
            by_peer[peer] += row.in_flight * size
            round_bytes += size
        longest_round = max(longest_round, round_bytes)
        longest_queue = max(longest_queue, sum(by_peer.values()) - max(by_peer.values(), default=0))
    longest = _exchange_bytes(RowFrames(MAX_PAYLOAD_WORDS, MAC_WIDTH), encap)
    rate = min(bytes_a_cycle(link.gbps, period_ps), MAC_WIDTH / 8)
    transfer_cycles = 2 * (longest_round + longest_queue + 2 * longest) / rate
    wire_cycles = 1000 * (4 * link.delay_ns + 2 * switch_ns) / period_ps
    return math.ceil(transfer_cycles + wire_cycles) + ACK_DELAY + PIPELINES


def _exchange_bytes(row: RowFrames, encap: Encap) -> int:
    """Return the bytes on the wire of a row's longest frame and of its ACK."""
    return max(row.wire_bytes(encap)) + _ACK_BYTES
