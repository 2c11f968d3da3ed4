"""Groups of ring nodes: an exchange as rounds of rings (docs/systems/ring-groups.md; INCEPTIONN, figure 1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fanin.ring.facts import MAX_NODES, MIN_NODES

BARRIER = 10e-6  # default seconds for hosts to synchronise between rounds


class Scheme(StrEnum):
    """Exchange within a group: a ring of its members, or a node that adds up the vectors of all others."""

    RING = "ring"  # INC, algorithm 1
    AGGREGATOR = "aggregator"  # WA


@dataclass(frozen=True)
class Ring:
    """Job of a ring of ``members``, in ring order.

    - ``contributors``: members that contribute their vectors; the other members contribute zeros.
    - ``receivers``: members that keep the job's result.
    """

    members: tuple[int, ...]
    contributors: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True)
class Round:
    """Rings without common nodes that run at the same time; ``level`` is the hierarchy level for display."""

    level: str
    rings: tuple[Ring, ...]


@dataclass(frozen=True)
class Plan:
    """Plan of an exchange: nodes 0 to ``workers`` - 1 begin with a vector each, the other nodes with zeros.

    After the last round all workers hold the sum.
    """

    workers: int
    nodes: int
    rounds: tuple[Round, ...]

    def last_round(self, node: int) -> int:
        """Return the number of the last round in which a node takes part."""
        return max(
            number
            for number, plan_round in enumerate(self.rounds)
            if any(node in ring.members for ring in plan_round.rings)
        )


def one_ring(workers: int) -> Plan:
    """Return a plan with all workers in one ring, for comparison."""
    all_workers = tuple(range(workers))
    return Plan(workers, workers, (Round("ring", (Ring(all_workers, all_workers, all_workers),)),))


@dataclass(frozen=True)
class Groups:
    """Division of workers into groups, and the exchanges of an all-reduce in groups.

    - ``groups``: number of groups.
    - ``members``: workers per group.
    - ``below``, ``above``: schemes within a group and between groups.

    Raises ValueError that names parameter, value and limit.
    """

    groups: int
    members: int
    below: Scheme = Scheme.RING
    above: Scheme = Scheme.RING

    def __post_init__(self) -> None:
        for name in ("groups", "members"):
            if getattr(self, name) < MIN_NODES:
                raise ValueError(f"{name} must be at least {MIN_NODES}, not {getattr(self, name)!r}")
        if self.nodes > MAX_NODES:
            raise ValueError(f"groups must have at most {MAX_NODES} nodes, aggregators too, not {self.nodes}")

    @classmethod
    def parse(cls, text: str, *, below: str = Scheme.RING, above: str = Scheme.RING) -> Groups:
        """Parse ``4x4``: groups, workers per group. Raises ValueError for any other form."""
        sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text)
        if not sizes:
            raise ValueError(f"groups must be like 4x4, groups and workers of each, not {text!r}")
        return cls(int(sizes[1]), int(sizes[2]), Scheme(below), Scheme(above))

    def __str__(self) -> str:
        return f"{self.groups}x{self.members}"

    def check_workers(self, nodes: int) -> None:
        """Raise ValueError unless the groups have ``nodes`` workers in all."""
        if self.workers != nodes:
            raise ValueError(
                f"groups must be of the {nodes} nodes that train, not {self}: {self.workers} workers"
            )

    @property
    def workers(self) -> int:
        """Workers of all groups."""
        return self.groups * self.members

    @property
    def nodes(self) -> int:
        """All nodes: workers, then the groups' aggregators, then the aggregator above them."""
        return self._root + (self.above is Scheme.AGGREGATOR)

    @property
    def _root(self) -> int:
        return self.workers + (self.below is Scheme.AGGREGATOR) * self.groups

    @property
    def plan(self) -> Plan:
        """Rounds of an exchange.

        Each group has a hub, which gets the group's sum: its aggregator, or its first worker in a ring. The
        hubs exchange their sums, and each hub copies the total to its group.
        """
        groups = [tuple(range(first, first + self.members)) for first in range(0, self.workers, self.members)]
        if self.below is Scheme.RING:
            hubs = tuple(group[0] for group in groups)
        else:
            hubs = tuple(range(self.workers, self.workers + self.groups))
        pairs = list(zip(hubs, groups, strict=True))
        rounds = _rounds("groups, up", [_gather_rings(hub, group) for hub, group in pairs])
        if self.above is Scheme.RING:
            rounds.append(Round("above", (Ring(hubs, contributors=hubs, receivers=hubs),)))
        else:
            rounds += _rounds("above, up", [_gather_rings(self._root, hubs)])
            rounds += _rounds("above, down", [_copy_rings(self._root, hubs)])
        rounds += _rounds("groups, down", [_copy_rings(hub, group) for hub, group in pairs])
        return Plan(self.workers, self.nodes, tuple(rounds))


def _gather_rings(hub: int, members: tuple[int, ...]) -> list[Ring]:
    """Return consecutive rings that leave the sum with the hub, which may be a member."""
    if hub in members:
        return [Ring(members, contributors=members, receivers=(hub,))]
    return [Ring((hub, member), contributors=(hub, member), receivers=(hub,)) for member in members]


def _copy_rings(hub: int, members: tuple[int, ...]) -> list[Ring]:
    """Return consecutive rings that copy the hub's vector to all members."""
    if hub in members:
        return [Ring(members, contributors=(hub,), receivers=members)]
    return [Ring((hub, member), contributors=(hub,), receivers=(member,)) for member in members]


def _rounds(level: str, rings_by_group: Sequence[Sequence[Ring]]) -> list[Round]:
    """Return rounds in which each group's rings run one after the other, and all groups run at the same
    time.
    """
    return [Round(level, rings) for rings in zip(*rings_by_group, strict=True)]
