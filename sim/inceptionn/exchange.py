"""Programs of the nodes in an exchange: what each node sends, receives and computes.

A program is a generator: it yields steps, and gets received values back. :class:`Host` runs it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fanin.codec.golden.exchange import Packets
from fanin.inceptionn.facts import Leg, Topology, blocks, relays
from fanin.ring.groups import Scheme

Float32 = npt.NDArray[np.float32]
T = TypeVar("T")


class Work(StrEnum):
    """Work of a host in addition to communication."""

    COMPUTE = "compute"
    SUM = "sum"
    UPDATE = "update"


@dataclass(frozen=True)
class Send:
    """Step: give a message to the transport; the program continues at once."""

    destination: int
    leg: Leg
    values: Float32


@dataclass(frozen=True)
class Drain:
    """Step: wait until everything sent to a node on a leg is acknowledged; after ``Send``, a blocking send."""

    destination: int
    leg: Leg


@dataclass(frozen=True)
class Receive:
    """Step: wait for a message of ``count`` values."""

    source: int
    leg: Leg
    count: int


@dataclass(frozen=True)
class Spend:
    """Step: work on ``size`` bytes, or for ``seconds``."""

    work: Work
    size: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Phase:
    """Step: end the present phase of an exchange, and begin the next one unless ``name`` is empty."""

    name: str = ""


Step = Send | Drain | Receive | Spend | Phase
Program = Generator[Step, Float32 | None, T]


def receive(source: int, leg: Leg, count: int) -> Program[Float32]:
    """Wait for a message."""
    values = yield Receive(source, leg, count)
    assert values is not None
    return values


def ring(gradient: Float32, members: Sequence[int], node: int, leg: Leg, packets: Packets) -> Program[Float32]:
    """Run algorithm 1 at one of ``members``; return the sum, with the same bits at each of them.

    The owner of a block's total applies the codec to it before it circulates, and keeps the result, so that all
    members have the same bits.
    """
    count, index = len(members), members.index(node)
    previous, next_member = members[index - 1], members[(index + 1) % count]
    slices, local = blocks(gradient.size, count), gradient.copy()
    yield Phase(f"reduce-scatter, {leg.label}")
    for step in range(1, 2 * count - 1):
        if step == count:
            yield Phase(f"all-gather, {leg.label}")
        yield Send(next_member, leg, local[slices[(index - step + 1) % count]])
        block = slices[(index - step) % count]
        received = yield from receive(previous, leg, block.stop - block.start)
        if step >= count:
            local[block] = received
            continue
        local[block] = received + local[block]
        yield Spend(Work.SUM, received.nbytes)
        if step == count - 1:
            local[block] = packets.settle(local[block])
            yield Spend(Work.SUM, received.nbytes)
    yield Phase()
    return local


def aggregate(members: Sequence[int], leg: Leg, count: int) -> Program[Float32]:
    """Receive the gradients of ``members`` at an aggregator, in their order; return the sum."""
    first, *other_members = members
    total = yield from receive(first, leg, count)
    for member in other_members:
        received = yield from receive(member, leg, count)
        total = total + received
        yield Spend(Work.SUM, received.nbytes)
    return total


def broadcast(
    values: Float32 | None, members: Sequence[int], node: int, leg: Leg, slices: Sequence[slice]
) -> Program[Float32]:
    """Send ``values`` of the first of ``members`` to all, down a binomial tree, in a message per block.

    Returns the values at each member. Sends block, like those of an MPI broadcast, so the link serves one child
    at a time. The first child can forward the message while the next one receives it.
    """
    parent, children = relays(members, node)
    received = np.empty(slices[-1].stop, np.float32) if values is None else values
    for block in slices:
        if parent is not None:
            received[block] = yield from receive(parent, leg, block.stop - block.start)
        for child in children:
            yield Send(child, leg, received[block])
            yield Drain(child, leg)
    return received


@dataclass(frozen=True)
class Participant:
    """Programs of a node in a ``topology``'s exchanges; ``packets`` models the NICs' effect on gradients."""

    topology: Topology
    node: int
    packets: Packets

    def reduce(self, gradient: Float32 | None, count: int) -> Program[Float32 | None]:
        """Return the sum of all gradients (``gradient`` is the node's); None at nodes that do not get it.

        Workers in rings only get the sum; otherwise the aggregator that updates the weights gets it.
        """
        topology, node = self.topology, self.node
        if topology.groups == 1:
            if topology.below is Scheme.RING:
                return (
                    yield from ring(_require(gradient), range(topology.workers), node, Leg.RING, self.packets)
                )
            return (
                yield from self._send_up(
                    gradient, range(topology.workers), node, topology.nodes - 1, Leg.UP, count
                )
            )
        total = gradient
        if group := self._group:
            if topology.below is Scheme.RING:
                total = yield from ring(_require(gradient), group, node, Leg.GROUP_RING, self.packets)
            else:
                leader = topology.leaders[topology.members.index(group)]
                total = yield from self._send_up(gradient, group, node, leader, Leg.GROUP_UP, count)
        return (yield from self._reduce_groups(total, count))

    def _reduce_groups(self, total: Float32 | None, count: int) -> Program[Float32 | None]:
        """Add up the groups' sums among the leaders; return the sum, or None at nodes that do not get it."""
        topology, node = self.topology, self.node
        leaders = topology.leaders
        if topology.above is Scheme.AGGREGATOR:
            if node in leaders or node == topology.aggregator:
                assert topology.aggregator is not None
                return (yield from self._send_up(total, leaders, node, topology.aggregator, Leg.UP, count))
            return None
        if node in leaders:
            total = yield from ring(_require(total), leaders, node, Leg.UPPER_RING, self.packets)
        slices = blocks(count, topology.groups)
        return (
            yield from broadcast(total if node in leaders else None, self._group, node, Leg.SUM_DOWN, slices)
        )

    def _send_up(
        self, gradient: Float32 | None, members: Sequence[int], node: int, aggregator: int, leg: Leg, count: int
    ) -> Program[Float32 | None]:
        if node == aggregator:
            return (yield from aggregate(members, leg, count))
        yield Send(aggregator, leg, _require(gradient))
        return None

    def distribute(self, weights: Float32 | None, count: int) -> Program[Float32]:
        """Distribute the aggregator's ``weights`` to every node, and return them."""
        topology, node = self.topology, self.node
        assert topology.aggregator is not None
        one_block = [slice(0, count)]
        if topology.groups == 1:
            members = (topology.aggregator, *range(topology.workers))
            return (yield from broadcast(weights, members, node, Leg.DOWN, one_block))
        leaders = (topology.aggregator, *topology.leaders)
        if node in leaders:
            weights = yield from broadcast(weights, leaders, node, Leg.DOWN, one_block)
        if node == topology.aggregator:
            return _require(weights)
        group = self._group
        leader = topology.leaders[topology.members.index(group)]
        members = group if leader == group[0] else (leader, *group)
        return (
            yield from broadcast(weights if node == leader else None, members, node, Leg.GROUP_DOWN, one_block)
        )

    @property
    def _group(self) -> tuple[int, ...]:
        """Workers of the node's group; empty for the aggregator above all groups."""
        topology = self.topology
        for leader, members in zip(topology.leaders, topology.members, strict=True):
            if self.node == leader or self.node in members:
                return members
        return ()


def _require(values: Float32 | None) -> Float32:
    assert values is not None
    return values
