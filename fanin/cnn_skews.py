"""Where branches of a network meet: how many words wait for those that take longer.

A join takes a word of each branch at a time. What the shorter branch has already must wait somewhere, or the
fork that feeds both stops, and with it the longer one: then nothing moves any more. On the way back a fork is
the join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from fanin.cnn import Consumer, Network
from fanin.layers.ends import Output, SoftCrossLoss


@dataclass(frozen=True)
class Skew:
    """Words that an edge holds, each way."""

    forward: int = 0
    backward: int = 0


Skews = Mapping[Consumer, Skew]  #: of edges, named by who takes the feature map; no other edge holds any


def default_skews(network: Network) -> dict[Consumer, Skew]:
    """Enough by the layers' own delays, and a whole frame more.

    An edge into a join holds what the slowest branch is behind its own; on the way back an edge out of a fork.
    """
    stages = network.stages
    arrival: list[Fraction] = []  # of a stage's first word out, in frames
    for stage in stages:
        arrival.append(stage.layer.delay + max((arrival[s] for s in stage.sources), default=Fraction(0)))
    departure = [Fraction(0)] * len(stages)  # of its first gradient out
    for index in reversed(range(len(stages))):
        after = max((departure[c.stage] for c in network.consumers[index]), default=Fraction(0))
        departure[index] = stages[index].layer.delay + after
    found = {}
    for source, consumers in enumerate(network.consumers):
        words = stages[source].layer.output.words
        for consumer in consumers:
            stage = stages[consumer.stage]
            skew = Skew(
                forward=_words(words, [arrival[s] for s in stage.sources], arrival[source])
                if len(stage.sources) > 1 and not isinstance(stage.layer, SoftCrossLoss)
                else 0,
                backward=_words(words, [departure[c.stage] for c in consumers], departure[consumer.stage])
                if len(consumers) > 1 and stages[source].layer.trains
                else 0,
            )
            if skew != Skew():
                found[consumer] = skew
    return found


def _words(frame: int, others: list[Fraction], own: Fraction) -> int:
    return ceil((1 + max(others) - own) * frame)


def check_network(network: Network) -> None:
    """Raise ValueError for what a node cannot be made of: outputs of other stages than the loss."""
    for stage in network.stages:
        if isinstance(stage.layer, Output) and stage.sources != (network.loss,):
            raise ValueError(
                f"{stage.name} must be the output of the loss, {network.stages[network.loss].name}"
            )
