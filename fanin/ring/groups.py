"""Groups of ring nodes: an exchange as rounds of rings (docs/systems/ring-groups.md; INCEPTIONN, figure 1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fanin.ring.facts import MAX_NODES, MIN_NODES

BARRIER = 10e-6  # seconds in which hosts synchronise between rounds, unless given


class Scheme(StrEnum):
    """A ring of the members, or a node that adds up what all others send it."""

    RING = "ring"  # INC, algorithm 1
    AGGREGATOR = "aggregator"  # WA


@dataclass(frozen=True)
class Ring:
    """One job: ``members`` in the ring's order, of which some give what they hold, the others zeros.

    Those that take hold what the job has stored from then on.
    """

    members: tuple[int, ...]
    gives: tuple[int, ...]
    takes: tuple[int, ...]


@dataclass(frozen=True)
class Round:
    """Rings without a node in common, at work at the same time; ``level`` says where they are."""

    level: str
    rings: tuple[Ring, ...]


@dataclass(frozen=True)
class Plan:
    """An exchange: nodes 0 to ``workers`` - 1 begin with a vector each, the other ones with zeros.

    Behind the last round all workers hold the sum.
    """

    workers: int
    nodes: int
    rounds: tuple[Round, ...]

    def last_round(self, node: int) -> int:
        """The last round that a node has a part in."""
        return max(
            number
            for number, each in enumerate(self.rounds)
            if any(node in ring.members for ring in each.rings)
        )


def one_ring(workers: int) -> Plan:
    """All workers in one ring, for comparison."""
    everyone = tuple(range(workers))
    return Plan(workers, workers, (Round("ring", (Ring(everyone, everyone, everyone),)),))


@dataclass(frozen=True)
class Groups:
    """So many groups of so many workers each, and how either level exchanges.

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
        """From ``4x4``: groups, workers of each. Raises ValueError for anything else."""
        sizes = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text)
        if not sizes:
            raise ValueError(f"groups must be like 4x4, groups and workers of each, not {text!r}")
        return cls(int(sizes[1]), int(sizes[2]), Scheme(below), Scheme(above))

    def __str__(self) -> str:
        return f"{self.groups}x{self.members}"

    def check_workers(self, nodes: int) -> None:
        """Raise ValueError unless these are groups of so many workers."""
        if self.workers != nodes:
            raise ValueError(
                f"groups must be of the {nodes} nodes that train, not {self}: {self.workers} workers"
            )

    @property
    def workers(self) -> int:
        """Of all groups."""
        return self.groups * self.members

    @property
    def nodes(self) -> int:
        """Workers, then the groups' aggregators, then the one above."""
        return self._root + (self.above is Scheme.AGGREGATOR)

    @property
    def _root(self) -> int:
        return self.workers + (self.below is Scheme.AGGREGATOR) * self.groups

    @property
    def plan(self) -> Plan:
        """The rounds of an exchange."""
        teams = [tuple(range(first, first + self.members)) for first in range(0, self.workers, self.members)]
        if self.below is Scheme.RING:
            hubs = tuple(team[0] for team in teams)
        else:
            hubs = tuple(range(self.workers, self.workers + self.groups))
        pairs = list(zip(hubs, teams, strict=True))
        rounds = _rounds("groups, up", [_up(hub, team) for hub, team in pairs])
        if self.above is Scheme.RING:
            rounds.append(Round("above", (Ring(hubs, gives=hubs, takes=hubs),)))
        else:
            rounds += _rounds("above, up", [_up(self._root, hubs)])
            rounds += _rounds("above, down", [_down(self._root, hubs)])
        rounds += _rounds("groups, down", [_down(hub, team) for hub, team in pairs])
        return Plan(self.workers, self.nodes, tuple(rounds))


def _up(hub: int, members: tuple[int, ...]) -> list[Ring]:
    """Rings, one after the other, that leave the sum with the hub, which may be a member."""
    if hub in members:
        return [Ring(members, gives=members, takes=(hub,))]
    return [Ring((hub, member), gives=(hub, member), takes=(hub,)) for member in members]


def _down(hub: int, members: tuple[int, ...]) -> list[Ring]:
    """Rings that leave what the hub holds with all members."""
    if hub in members:
        return [Ring(members, gives=(hub,), takes=members)]
    return [Ring((hub, member), gives=(hub,), takes=(member,)) for member in members]


def _rounds(level: str, of_groups: Sequence[Sequence[Ring]]) -> list[Round]:
    """The rings of each group one after the other, those of all groups at once."""
    return [Round(level, rings) for rings in zip(*of_groups, strict=True)]
