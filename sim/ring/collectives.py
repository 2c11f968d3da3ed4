"""Cost of collectives in the α–β–γ model, as INCEPTIONN (section VIII-D) and AI Smart NIC (section III) use it.

The model: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Link:
    """Costs of a link: ``latency`` α in seconds per message; ``byte`` β and ``add`` γ in seconds per byte."""

    latency: float
    byte: float
    add: float


class Scheme(Protocol):
    """An all-reduce algorithm: a function from nodes, bytes and link to seconds."""

    def __call__(self, nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
        """Return the time in seconds."""


def ring(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Return the seconds of a ring all-reduce of ``size`` bytes: 2(p − 1)α + 2(p − 1)/p nβ + (p − 1)/p nγ.

    ``ratio``: compression ratio of a codec on the wire, here and in the other functions.
    """
    share = (nodes - 1) / nodes * size
    return 2 * (nodes - 1) * link.latency + 2 * share * link.byte / ratio + share * link.add


def rabenseifner(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Return the seconds of recursive halving and doubling: 2 lg p α + 2(p − 1)/p nβ + (p − 1)/p nγ.

    Nodes beyond a power of two first send their vector to a neighbour, and receive the sum last, as in MPICH.
    """
    power = 1 << nodes.bit_length() - 1
    share = (power - 1) / power * size
    seconds = 2 * math.log2(power) * link.latency + 2 * share * link.byte / ratio + share * link.add
    if nodes > power:
        seconds += 2 * link.latency + 2 * size * link.byte / ratio + size * link.add
    return seconds


def binomial(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Return the seconds of a binomial tree's gather with summing, and scatter: ⌈lg p⌉ (2α + 2nβ + nγ)."""
    steps = math.ceil(math.log2(nodes))
    return steps * (2 * link.latency + 2 * size * link.byte / ratio + size * link.add)


def best(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Return the seconds of the fastest algorithm, which a library's heuristics aim at."""
    schemes: tuple[Scheme, ...] = (ring, rabenseifner, binomial)
    return min(scheme(nodes, size, link, ratio=ratio) for scheme in schemes)


def worker_aggregator(workers: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Return the seconds of INCEPTIONN's baseline: (1 + lg p)α + (p + lg p)nβ + (p − 1)nγ.

    Gradients enter the aggregator's link one by one, and weights are sent down a binomial tree. ``ratio``
    applies to the gradients only.
    """
    steps = math.log2(workers)
    wire = (workers / ratio + steps) * size * link.byte
    return (1 + steps) * link.latency + wire + (workers - 1) * size * link.add
