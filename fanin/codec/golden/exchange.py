"""Golden model of INCEPTIONN's exchanges, bit for bit: order of additions, and the NICs' effect on each packet
(docs/systems/inceptionn-training.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import TAG_BYTES, CodecConfig, Inceptionn, Tag
from fanin.codec.golden import inceptionn
from fanin.codec.golden.codecs import roundtrip
from fanin.codec.golden.packet import LENGTH_BYTES
from fanin.codec.golden.rounding import derived_seed
from fanin.inceptionn.facts import VALUE_BYTES, Leg, Topology, blocks
from fanin.ring.groups import Scheme

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

_SIZES = np.array([TAG_BYTES[tag] for tag in Tag], dtype=np.int64)
_NIC_GROUP = 8  # values per group: InceptionnNic's bursts have 256 bits


@dataclass(frozen=True)
class Packets:
    """Division of a message of float32 values into packets of ``mss`` bytes; the codec treats each separately.

    Raises ValueError for a codec that the NIC does not have.
    """

    codec: Inceptionn | None
    mss: int

    def __post_init__(self) -> None:
        if self.codec and self.codec.group != _NIC_GROUP:
            raise ValueError(f"group must be {_NIC_GROUP}, the NIC's, not {self.codec.group!r}")

    def carry(self, values: Float32) -> tuple[Float32, Int64]:
        """Return the values that a receiver gets, and the payload bytes of each packet on the wire.

        A packet that does not shrink arrives unchanged.
        """
        values_per_packet = self.mss // VALUE_BYTES
        starts = np.arange(0, values.size, values_per_packet)
        counts = np.diff(np.append(starts, values.size))  # values of each packet
        raw_bytes = counts * VALUE_BYTES
        if self.codec is None:
            return values, raw_bytes
        rows = np.zeros((len(counts), values_per_packet), dtype=np.float32)
        rows.reshape(-1)[: values.size] = values
        tags, _ = inceptionn.compress(rows.reshape(-1), self.codec)
        groups = -(-counts // self.codec.group)
        value_bytes = _SIZES[tags].reshape(rows.shape).sum(axis=1)
        coded_bytes = LENGTH_BYTES + groups * self.codec.tag_bytes + value_bytes
        shrinks = coded_bytes < raw_bytes
        received = np.where(shrinks[:, None], inceptionn.roundtrip(rows, self.codec), rows)
        return received.reshape(-1)[: values.size], np.where(shrinks, coded_bytes, raw_bytes)

    def settle(self, values: Float32) -> Float32:
        """Return ``values`` after two round trips through the codec, which further round trips leave unchanged.

        One round trip is not enough in strict mode: a value that arrives as exactly 2^-b becomes zero in the
        next.
        """
        first, _ = self.carry(values)
        second, _ = self.carry(first)
        return second


@dataclass
class Wire:
    """Network without loss, which counts packets (``frames``) and payload bytes of each leg."""

    packets: Packets
    frames: Counter[Leg] = field(default_factory=Counter)
    payload: Counter[Leg] = field(default_factory=Counter)

    def of(self, leg: Leg) -> Packets:
        """Return the packets of a leg; weights are sent without the codec."""
        return self.packets if leg.gradients else Packets(None, self.packets.mss)

    def send(self, leg: Leg, values: Float32, *, times: int = 1) -> Float32:
        """Return the values that arrive of a message; count the message ``times`` times."""
        received, sizes = self.of(leg).carry(values)
        self.frames[leg] += times * len(sizes)
        self.payload[leg] += times * int(sizes.sum())
        return received


def exchange(topology: Topology, gradients: Sequence[Float32], wire: Wire) -> Float32:
    """Return the sum that all workers end with, or the aggregator's; ``gradients`` are in order of workers.

    Weights are not sent; see :func:`count_weights`.
    """
    groups = [[gradients[worker] for worker in members] for members in topology.members]
    if topology.groups == 1:
        return _SCHEMES[topology.below](groups[0], wire, _SINGLE_GROUP_LEGS[topology.below])
    group_leg = Leg.GROUP_RING if topology.below is Scheme.RING else Leg.GROUP_UP
    sums = [_SCHEMES[topology.below](group, wire, group_leg) for group in groups]
    if topology.above is Scheme.AGGREGATOR:
        return aggregate(sums, wire, Leg.UP)
    total = ring(sums, wire, Leg.UPPER_RING)
    for block in blocks(total.size, topology.groups):  # each block is settled already
        wire.send(Leg.SUM_DOWN, total[block], times=topology.workers - topology.groups)
    return total


def count_weights(topology: Topology, weights: Float32, wire: Wire) -> None:
    """Count the messages that send the aggregator's weights to all other nodes."""
    if topology.groups == 1:
        wire.send(Leg.DOWN, weights, times=topology.workers)
        return
    wire.send(Leg.DOWN, weights, times=topology.groups)
    children = topology.workers - (topology.groups if topology.below is Scheme.RING else 0)
    wire.send(Leg.GROUP_DOWN, weights, times=children)


def ring(gradients: Sequence[Float32], wire: Wire, leg: Leg) -> Float32:
    """Return the sum by algorithm 1: block b starts at node b, the next nodes add theirs, all get the total.

    The total is settled, so all nodes, including the one that computed it, have the same values.
    """
    nodes, total = len(gradients), np.empty_like(gradients[0])
    for first, block in enumerate(blocks(total.size, nodes)):
        partial = gradients[first][block]
        for hop in range(1, nodes):
            partial = wire.send(leg, partial) + gradients[(first + hop) % nodes][block]
        total[block] = wire.of(leg).settle(partial)
        wire.send(leg, total[block], times=nodes - 1)
    return total


def host_ring(gradients: Sequence[Float32], codec: CodecConfig | None, seed: int = 1) -> Float32:
    """Return the sum by algorithm 1, with the codec in the hosts, which encode a total once.

    ``seed``: start of the random bits of stochastic rounding; each node has other bits in each step.
    """
    nodes, total = len(gradients), np.empty_like(gradients[0])
    if nodes == 1:
        return gradients[0].copy()
    for first, block in enumerate(blocks(total.size, nodes)):
        partial = gradients[first][block]
        for step in range(nodes):
            arriving = roundtrip(partial, codec, derived_seed(seed, (first + step) % nodes, step))
            if step < nodes - 1:
                partial = arriving + gradients[(first + step + 1) % nodes][block]
        total[block] = arriving
    return total


def aggregate(gradients: Sequence[Float32], wire: Wire, leg: Leg) -> Float32:
    """Return the sum, in order, of gradients as they arrive at an aggregator."""
    total, *other_gradients = [wire.send(leg, gradient) for gradient in gradients]
    for gradient in other_gradients:
        total = total + gradient
    return total


_SCHEMES: dict[Scheme, Callable[[Sequence[Float32], Wire, Leg], Float32]] = {
    Scheme.RING: ring,
    Scheme.AGGREGATOR: aggregate,
}
_SINGLE_GROUP_LEGS = {Scheme.RING: Leg.RING, Scheme.AGGREGATOR: Leg.UP}
