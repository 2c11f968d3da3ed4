"""Exchanges that add up workers' gradients: INCEPTIONN's ring, its baseline, and groups of both (figure 1).

An exchange takes every worker's gradient, in order, and returns the sum as every replica of the model gets it.
Replicas stay equal bit for bit, so one represents all. Traffic is counted leg by leg.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Inceptionn
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce
from fanin.sim.codec.wire import AnyCodec, Traffic

Float32 = npt.NDArray[np.float32]

WEIGHTS = "weights down"
BROADCAST = "sum down"


class Exchange(Protocol):
    """Exchange, which adds up the workers' gradients."""

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum; ``traffic`` counts the bytes sent."""


@dataclass(frozen=True)
class Ring:
    """Gradient-centric exchange (algorithm 1): each hop compresses, as in docs/systems/ring.md.

    A slice's bytes are those of whole words, with the zeros after the vector's end.
    """

    codec: AnyCodec = None
    leg: str = "ring"

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum; a single gradient is returned unchanged."""
        nodes = len(gradients)
        if nodes == 1:
            return gradients[0]
        config = RingConfig(lanes=self.codec.group) if isinstance(self.codec, Inceptionn) else RingConfig()
        calls = 0

        def hop(values: Float32) -> Float32:
            nonlocal calls
            calls += 1
            times = 1 if calls % nodes else nodes - 1  # each N-th hop is the total, which all others receive
            return traffic.send(self.leg, values, self.codec, times=times)

        return all_reduce(gradients, config, hop)


@dataclass(frozen=True)
class WorkerAggregator:
    """Baseline exchange: gradients go up to one aggregator, and weights go down without compression."""

    codec: AnyCodec = None

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum in the workers' order."""
        total = _aggregate(gradients, traffic, "gradients up", self.codec)
        traffic.send(WEIGHTS, total, times=len(gradients))  # as many values as weights
        return total


@dataclass(frozen=True)
class AggregatorTree:
    """Exchange of figure 1(a): an aggregator for each group, and one above them."""

    groups: int
    codec: AnyCodec = None

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum of the groups' sums."""
        add = partial(_aggregate, traffic=traffic, leg="gradients up, groups", codec=self.codec)
        total = _aggregate(_sum_groups(gradients, self.groups, add), traffic, "gradients up, root", self.codec)
        traffic.send(WEIGHTS, total, times=self.groups + len(gradients))
        return total


@dataclass(frozen=True)
class RingsUnderAggregator:
    """Exchange of figure 1(b): rings in the groups, an aggregator of their sums, and weights sent down."""

    groups: int
    codec: AnyCodec = None

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum of the groups' sums, added by the aggregator."""
        ring = partial(Ring(self.codec, "rings of workers"), traffic=traffic)
        total = _aggregate(_sum_groups(gradients, self.groups, ring), traffic, "gradients up", self.codec)
        traffic.send(WEIGHTS, total, times=len(gradients))
        return total


@dataclass(frozen=True)
class RingOfRings:
    """Exchange of figure 1(c): rings in the groups, a ring of their first workers, which send the sum down."""

    groups: int
    codec: AnyCodec = None

    def __call__(self, gradients: Sequence[Float32], traffic: Traffic) -> Float32:
        """Return the sum of the groups' sums; first workers also keep it as the others receive it."""
        ring = partial(Ring(self.codec, "rings of workers"), traffic=traffic)
        total = Ring(self.codec, "ring of groups")(_sum_groups(gradients, self.groups, ring), traffic)
        return traffic.send(BROADCAST, total, self.codec, times=len(gradients) - self.groups)


def _aggregate(gradients: Sequence[Float32], traffic: Traffic, leg: str, codec: AnyCodec) -> Float32:
    """Return an aggregator's sum of the gradients that are sent to it."""
    total, *other_gradients = [traffic.send(leg, gradient, codec) for gradient in gradients]
    total = total.copy()
    for gradient in other_gradients:
        total += gradient
    return total


def _sum_groups(
    gradients: Sequence[Float32], groups: int, add: Callable[[Sequence[Float32]], Float32]
) -> list[Float32]:
    """Return the sum of each of ``groups`` equal groups. Raises ValueError if they cannot be equal."""
    if len(gradients) % groups:
        raise ValueError(f"groups must divide the {len(gradients)} workers, not be {groups}")
    size = len(gradients) // groups
    return [add(gradients[start : start + size]) for start in range(0, len(gradients), size)]
