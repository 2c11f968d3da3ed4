"""INCEPTIONN's training: topology of the exchange, its kinds of messages, and their segments
(docs/systems/inceptionn-training.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from fanin.codec.facts import MAX_FRAME
from fanin.ring.groups import Scheme
from fanin.wire.ethernet import ETHERNET, IPV4, TCP
from fanin.wire.fields import byte_length

FIRST_PORT = 34998  # TCP port of the first leg, at both ends; each leg has its own
VALUE_BYTES = 4
HEADER_BYTES = byte_length(ETHERNET) + byte_length(IPV4) + byte_length(TCP)
MAX_WINDOW_BYTES = (1 << 16) - 1  # largest value of TCP's window field, without scaling
MIN_WORKERS, MAX_WORKERS = 2, 64


class Leg(Enum):
    """Kind of messages in an exchange: its label, and whether a codec may change their values.

    Each leg has its own TCP port.
    """

    RING = ("ring", True)
    GROUP_RING = ("rings of workers", True)
    UPPER_RING = ("ring of groups", True)
    UP = ("gradients up", True)
    GROUP_UP = ("gradients up, groups", True)
    DOWN = ("weights down", False)
    GROUP_DOWN = ("weights down, groups", False)
    SUM_DOWN = ("sum down", True)

    def __init__(self, label: str, gradients: bool):
        self.label = label
        #: True for gradients, which may lose precision; False for weights, which may not.
        self.gradients = gradients

    @property
    def port(self) -> int:
        """TCP port of the leg's connections, at both ends."""
        return FIRST_PORT + list(Leg).index(self)


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """Parameters of the hosts' transport. Raises ValueError that names parameter, value and limit.

    - ``mss``: payload bytes per segment.
    - ``window``: segments in flight per connection.
    - ``ack_every``: segments per acknowledgement; the end of a message is always acknowledged.
    - ``timeout``: seconds until a segment is sent again.
    - ``retries``: retransmissions of a segment until the connection fails.
    - ``probe``: seconds without a segment until a waiting host probes its peer.
    """

    mss: int = 1460
    window: int = 32
    ack_every: int = 2
    timeout: float = 2e-3
    retries: int = 8
    probe: float = 50e-3

    def __post_init__(self) -> None:
        max_mss = (MAX_FRAME - HEADER_BYTES) // VALUE_BYTES * VALUE_BYTES
        if self.mss % VALUE_BYTES or not VALUE_BYTES <= self.mss <= max_mss:
            raise ValueError(f"mss must be whole values, {VALUE_BYTES} to {max_mss} bytes, not {self.mss!r}")
        if not 1 <= self.window <= MAX_WINDOW_BYTES // self.mss:
            limit = MAX_WINDOW_BYTES // self.mss
            raise ValueError(f"window must be 1 to {limit} segments of {self.mss} bytes, not {self.window!r}")
        for name in ("ack_every", "retries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("timeout", "probe"):
            if not 1e-6 <= getattr(self, name) <= 1e3:
                raise ValueError(f"{name} must be 1e-6 to 1000 s, not {getattr(self, name)!r}")


def blocks(count: int, parts: int) -> list[slice]:
    """Divide a vector of ``count`` values into ``parts`` as evenly as possible (algorithm 1, line 8)."""
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


@dataclass(frozen=True)
class Topology:
    """Groups of workers, and the exchanges within and between groups (figure 1).

    - ``workers``: number of workers.
    - ``below``: scheme within a group.
    - ``groups``: number of groups, all of the same size.
    - ``above``: scheme between groups; None for a single group.

    Nodes are numbered: workers, then the groups' aggregators, then the aggregator above them. Raises ValueError
    for impossible combinations.
    """

    workers: int
    below: Scheme = Scheme.RING
    groups: int = 1
    above: Scheme | None = None

    def __post_init__(self) -> None:
        if not MIN_WORKERS <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers must be {MIN_WORKERS} to {MAX_WORKERS}, not {self.workers!r}")
        if self.groups < 1 or self.workers % self.groups:
            raise ValueError(f"groups must divide the {self.workers} workers, not be {self.groups!r}")
        size = self.workers // self.groups
        if size < MIN_WORKERS:
            raise ValueError(f"a group must have at least {MIN_WORKERS} workers, not {size}")
        if (self.groups == 1) != (self.above is None):
            raise ValueError(
                f"above must be given for several groups and must be None for one, not {self.above!r}"
            )
        if self.below is Scheme.AGGREGATOR and self.above is Scheme.RING:
            raise ValueError("above must be aggregator where groups have aggregators, not ring")

    @property
    def members(self) -> list[tuple[int, ...]]:
        """Workers of each group."""
        size = self.workers // self.groups
        return [tuple(range(first, first + size)) for first in range(0, self.workers, size)]

    @property
    def leaders(self) -> tuple[int, ...]:
        """Node that represents each group in the upper exchange: its aggregator, or its first worker."""
        if self.groups > 1 and self.below is Scheme.AGGREGATOR:
            return tuple(range(self.workers, self.workers + self.groups))
        return tuple(group[0] for group in self.members)

    @property
    def aggregator(self) -> int | None:
        """Node that updates the weights for all workers; None if each worker updates its own."""
        if Scheme.AGGREGATOR not in (self.below, self.above):
            return None
        return self.nodes - 1

    @property
    def nodes(self) -> int:
        """Number of workers and aggregators."""
        if self.below is Scheme.AGGREGATOR:
            return self.workers + (self.groups if self.groups > 1 else 0) + 1
        return self.workers + (self.above is Scheme.AGGREGATOR)

    @property
    def name(self) -> str:
        """Name of the topology in the paper."""
        if self.groups == 1:
            return "INC" if self.below is Scheme.RING else "WA"
        level = "a" if self.below is Scheme.AGGREGATOR else "b" if self.above is Scheme.AGGREGATOR else "c"
        return f"figure 1({level})"


def relays(members: Sequence[int], node: int) -> tuple[int | None, list[int]]:
    """Return a node's parent and children in the binomial tree of a broadcast from the first of ``members``.

    The member at position p receives from position p - 2^k, where 2^k is the lowest one bit of p. It then sends
    to p + 2^(k-1), p + 2^(k-2), …, p + 1. The first member has no parent (None) and sends to all powers of two.
    Children are in the order of sending.
    """
    position, count = members.index(node), len(members)
    parent = None
    if position == 0:
        lowest_bit = 1 << max(count - 1, 1).bit_length()
    else:
        lowest_bit = position & -position
        parent = members[position - lowest_bit]
    steps = [1 << n for n in reversed(range(lowest_bit.bit_length() - 1))]
    return parent, [members[position + step] for step in steps if position + step < count]
