"""What a collective costs in the α–β–γ model (Thakur, Rabenseifner, Gropp: Optimization of Collective
Communication Operations in MPICH, 2005), as INCEPTIONN (section VIII-D) and AI Smart NIC (section III) use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Link:
    """``latency``: α, seconds of a message; ``byte``, ``add``: β, γ, seconds of a byte sent, and summed."""

    latency: float
    byte: float
    add: float


class Scheme(Protocol):
    """An all-reduce: nodes, bytes and link to seconds."""

    def __call__(self, nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
        """Seconds that it takes."""


def ring(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Seconds of a ring all-reduce of ``size`` bytes: 2(p − 1)α + 2(p − 1)/p nβ + (p − 1)/p nγ.

    ``ratio``: how many times a codec makes the bytes on the wire fewer, here and below.
    """
    share = (nodes - 1) / nodes * size
    return 2 * (nodes - 1) * link.latency + 2 * share * link.byte / ratio + share * link.add


def rabenseifner(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Seconds of recursive halving and doubling: 2 lg p α + 2(p − 1)/p nβ + (p − 1)/p nγ.

    Nodes beyond a power of two hand their vector to a neighbour first and get the sum last, as in MPICH.
    """
    power = 1 << nodes.bit_length() - 1
    share = (power - 1) / power * size
    seconds = 2 * math.log2(power) * link.latency + 2 * share * link.byte / ratio + share * link.add
    if nodes > power:
        seconds += 2 * link.latency + 2 * size * link.byte / ratio + size * link.add
    return seconds


def binomial(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Seconds of a binomial tree's gathering, summing on the way, and scattering: ⌈lg p⌉ (2α + 2nβ + nγ)."""
    steps = math.ceil(math.log2(nodes))
    return steps * (2 * link.latency + 2 * size * link.byte / ratio + size * link.add)


def best(nodes: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Seconds of the fastest of these: what a library's heuristics, by nodes and size, aim at."""
    schemes: tuple[Scheme, ...] = (ring, rabenseifner, binomial)
    return min(scheme(nodes, size, link, ratio=ratio) for scheme in schemes)


def worker_aggregator(workers: int, size: float, link: Link, *, ratio: float = 1.0) -> float:
    """Seconds of INCEPTIONN's baseline: (1 + lg p)α + (p + lg p)nβ + (p − 1)nγ.

    Gradients go up one by one into the aggregator's link, weights come down a binomial tree; ``ratio`` is
    that of the gradients alone.
    """
    steps = math.log2(workers)
    wire = (workers / ratio + steps) * size * link.byte
    return (1 + steps) * link.latency + wire + (workers - 1) * size * link.add
