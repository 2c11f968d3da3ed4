"""Timeout after which a connection sends again: longer than any answer takes if no frame is lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from fanin.cnn.parts import Part
from fanin.hdl.layers.registers import ACK_DELAY, network_ends
from fanin.sim.cosim.clock import bytes_a_cycle
from fanin.sim.network import LinkConfig
from fanin.wire.connection import MAC_WIDTH, MAX_PAYLOAD_WORDS, RowFrames
from fanin.wire.ethernet import AROUND_FRAME, Encap
from fanin.wire.link import LINK_CONTROL_BYTES

PIPELINES = 32  # cycles in both nodes: from a kept frame to its beats, from its last beat to the answer's
_ANSWER = LINK_CONTROL_BYTES + AROUND_FRAME  # bytes of the wire's time


def link_timeout(
    parts: Sequence[Part], *, link: LinkConfig, switch_ns: float, period_ps: int, encap: Encap
) -> int:
    """Return the cycles for a cluster's links by the formula of docs/systems/link.md, "How long to wait"."""
    ends: dict[int, list[str]] = defaultdict(list)
    for part in parts:
        for one in part.ends.values():
            ends[one.number].append(part.device)
    rounds = queue = 0
    for part in parts:
        by_peer: dict[str, int] = defaultdict(int)
        turns = 0
        for index in network_ends(part.network):
            shape = part.network.stages[index].layer.output
            row = RowFrames(shape.w * shape.c, MAC_WIDTH)
            size = _both(row, encap)
            (peer,) = (device for device in ends[part.ends[index].number] if device != part.device)
            by_peer[peer] += row.in_flight * size
            turns += size
        rounds = max(rounds, turns)
        queue = max(queue, sum(by_peer.values()) - max(by_peer.values(), default=0))
    longest = _both(RowFrames(MAX_PAYLOAD_WORDS, MAC_WIDTH), encap)
    rate = min(bytes_a_cycle(link.gbps, period_ps), MAC_WIDTH / 8)
    moved = 2 * (rounds + queue + 2 * longest) / rate
    way = 1000 * (4 * link.delay_ns + 2 * switch_ns) / period_ps
    return math.ceil(moved + way) + ACK_DELAY + PIPELINES


def _both(row: RowFrames, encap: Encap) -> int:
    """Return the bytes on the wire of a row's longest frame and of an answer."""
    return max(row.wire_bytes(encap)) + _ANSWER
