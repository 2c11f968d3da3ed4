"""Tree of switches and workers for the checker, with its symmetries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import permutations, product

from fanin.tree import Shape, check_shape, workers_of

ROOT = 0  # number of the root among the switches


class Topology:
    """Tree of a shape. An *actor* has a parent: it is a worker, or a switch below the root.

    - ``workers``: number of workers. They are the first actors.
    - ``switches``: numbers of the switches; ``ROOT`` first, parents before their members. Those below the root
      are the last actors, in the same order.
    - ``actors``: number of actors.
    - ``parents``: number of the parent switch, by actor.
    - ``members``: actors below each switch, in the order of its ports.
    """

    def __init__(self, shape: Shape):
        check_shape(shape)
        self.workers = workers_of(shape)
        self.members: list[list[int]] = []
        self._shapes: list[Shape] = []
        workers = iter(range(self.workers))
        self._add(shape, workers)
        self.switches = range(len(self.members))
        self.actors = self.workers + len(self.switches) - 1
        self.parents = [0] * self.actors
        for switch, members in enumerate(self.members):
            for actor in members:
                self.parents[actor] = switch

    def _add(self, shape: Shape, workers: Iterator[int]) -> int:
        """Add a switch and those below; return its number."""
        switch = len(self.members)
        self._shapes.append(shape)
        self.members.append([])
        if isinstance(shape, int):
            self.members[switch] = [next(workers) for _ in range(shape)]
        else:
            self.members[switch] = [self.actor_of(self._add(part, workers)) for part in shape]
        return switch

    def actor_of(self, switch: int) -> int:
        """Return the actor that a switch below the root is."""
        return self.workers + switch - 1

    def switch_of(self, actor: int) -> int:
        """Return the number of the switch that an actor is. Precondition: it is no worker."""
        return actor - self.workers + 1

    @property
    def names(self) -> list[str]:
        """Names of all actors, then of the root."""
        below = [f"switch {switch}" for switch in self.switches[1:]]
        return [f"worker {worker}" for worker in range(self.workers)] + below + ["root" if below else "switch"]

    def is_worker(self, actor: int) -> bool:
        """Return whether the actor is a worker."""
        return actor < self.workers

    def shape(self, switch: int) -> Shape:
        """Return the shape of the tree below a switch; switches of one shape are interchangeable."""
        return self._shapes[switch]

    def size(self, actor: int) -> int:
        """Return the number of workers at or below an actor."""
        return 1 if self.is_worker(actor) else workers_of(self._shapes[self.switch_of(actor)])

    def workers_below(self, switch: int) -> list[int]:
        """Return the workers below a switch, in the order of members."""
        below = []
        for actor in self.members[switch]:
            below += [actor] if self.is_worker(actor) else self.workers_below(self.switch_of(actor))
        return below

    @cached_property
    def symmetries(self) -> list[tuple[int, ...]]:
        """Renamings of the actors that leave the tree as it is: the new name by actor. The first is none."""
        renamings = self._renamings(ROOT, ROOT)
        return [tuple(renaming[actor] for actor in range(self.actors)) for renaming in renamings]

    def _renamings(self, source: int, target: int) -> Iterator[dict[int, int]]:
        """Yield the renamings of the actors below one switch to those below another one of the same shape."""
        for targets in permutations(self.members[target]):
            pairs = list(zip(self.members[source], targets, strict=True))
            options = [list(self._renamings_of(old, new)) for old, new in pairs]
            for parts in product(*options):
                yield {old: new for part in parts for old, new in part.items()}

    def _renamings_of(self, old: int, new: int) -> Iterator[Mapping[int, int]]:
        if self.is_worker(old) or self.is_worker(new):
            if self.is_worker(old) and self.is_worker(new):
                yield {old: new}
        elif self.shape(self.switch_of(old)) == self.shape(self.switch_of(new)):
            for renaming in self._renamings(self.switch_of(old), self.switch_of(new)):
                yield {old: new, **renaming}

    def renaming_at(self, switch: int, renaming: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a symmetry does at a switch: new places of its members, and of the workers below."""
        target = switch if switch == ROOT else self.switch_of(renaming[self.actor_of(switch)])
        members, workers = self.members[target], self.workers_below(target)
        return (
            tuple(members.index(renaming[actor]) for actor in self.members[switch]),
            tuple(workers.index(renaming[worker]) for worker in self.workers_below(switch)),
        )
