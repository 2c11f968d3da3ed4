"""Aggregation trees: switches of a job whose workers are at several of them (docs/systems/trees.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice
from typing import Any, TypeAlias, TypeVar, cast

from fanin.job import Job, Member, Uplink, worker_endpoint
from fanin.link import LinkConfig
from fanin.wire.aggregation import MAX_WORKERS
from fanin.wire.ethernet import Endpoint

MAX_LEVELS = 4  #: switches on the way from a worker to the root, both included
MAX_TREE_WORKERS = 65_535  #: above, default addresses of workers would be those of switches
_SHAPE = r"([0-9]{1,3}x){0,8}[0-9]{1,3}(\+[0-9]{1,3}){0,99}"
#: A switch with so many workers, or a switch with such switches as members.
Shape: TypeAlias = "int | tuple[Shape, ...]"
T = TypeVar("T", int, float)


def parse_shape(text: str) -> Shape:
    """Return the shape that a text describes. Raises ValueError.

    ``4x8``: four switches of eight workers below a root. ``2x4x8``: two such trees below a root. ``1+2``: a
    switch of one worker and a switch of two below a root. ``8``: one switch.
    """
    if not re.fullmatch(_SHAPE, text):
        raise ValueError(f"a tree must be like 4x8 (four racks of eight workers), 2x4x8 or 1+2, not {text!r}")
    *groups, last = text.split("x")
    workers = tuple(map(int, last.split("+")))
    levels = len(groups) + 1 + (len(workers) > 1)
    if levels > MAX_LEVELS:  # before the shape is built, whose size is exponential in the levels
        raise ValueError(f"{text}: a tree has at most {MAX_LEVELS} levels of switches, not {levels}")
    if wrong := [number for number in map(int, groups) if not 1 <= number <= MAX_WORKERS]:
        raise ValueError(f"{text}: a switch must have 1 to {MAX_WORKERS} members, not {wrong[0]}")
    shape: Shape = workers if len(workers) > 1 else workers[0]
    for switches in reversed(groups):
        shape = (shape,) * int(switches)
    check_shape(shape)
    return shape


def check_shape(shape: Shape) -> None:
    """Raise ValueError for a switch with too many members or none, and for too many levels."""
    if levels_of(shape) > MAX_LEVELS:
        raise ValueError(f"a tree has at most {MAX_LEVELS} levels of switches, not {levels_of(shape)}")
    for part in _parts(shape):
        if not 1 <= _members_of(part) <= MAX_WORKERS:
            raise ValueError(f"a switch must have 1 to {MAX_WORKERS} members, not {_members_of(part)}")


def levels_of(shape: Shape) -> int:
    """Return the number of levels of switches."""
    return 1 if isinstance(shape, int) else 1 + max(map(levels_of, shape), default=0)


def passed_switches(levels: int) -> int:
    """Return the number of switches that a round trip between a worker and the root passes."""
    return 2 * levels - 1


def workers_of(shape: Shape) -> int:
    """Return the number of workers."""
    return shape if isinstance(shape, int) else sum(map(workers_of, shape))


def _parts(shape: Shape) -> Iterator[Shape]:
    """Yield the shape and those of all switches below."""
    yield shape
    if not isinstance(shape, int):
        for part in shape:
            yield from _parts(part)


@dataclass(frozen=True)
class TreeSwitch:
    """A switch of a tree.

    - ``name``: unique in the tree.
    - ``endpoint``: addresses of the switch.
    - ``part``: its part of the job.
    - ``members``: number of a worker or name of a switch, in the order of ``part.members``.
    - ``link``: fields of :data:`fanin.link.TRUNK` in which the simulated link to the parent differs from the
      workers' links.
    """

    name: str
    endpoint: Endpoint
    part: Job
    members: tuple[int | str, ...]
    link: Mapping[str, Any] = field(default_factory=dict)

    def trunk(self, link: LinkConfig) -> LinkConfig:
        """Return the properties of the link to the parent. ``link``: those of the workers' links."""
        return replace(link, host_ns=0.0, host_jitter_ns=0.0, **self.link)  # switches are no hosts

    @property
    def ports(self) -> list[int]:
        """Ports to members and parent."""
        return [station.port for station in self.part.stations]


@dataclass(frozen=True)
class Tree:
    """Switches of a tree, the root first and parents before their members; workers are numbered from 0.

    Id, base and slots of the job are the same at all switches.
    """

    switches: tuple[TreeSwitch, ...]

    @property
    def root(self) -> TreeSwitch:
        """Switch that has no parent."""
        return self.switches[0]

    @property
    def levels(self) -> int:
        """Number of switches on the longest way from a worker to the root, both ends included."""
        return 1 + max(self.distances(lambda _: 1).values())

    @property
    def bits(self) -> int:
        """Number of bits that hold the bitmaps of all members at every switch."""
        return max(switch.part.bitmap.bit_length() for switch in self.switches)

    @property
    def members(self) -> dict[str, list[str]]:
        """Members of each switch by its name: ``worker 0``, or the name of a switch."""
        return {
            switch.name: [name if isinstance(name, str) else f"worker {name}" for name in switch.members]
            for switch in self.switches
        }

    @cached_property
    def workers(self) -> tuple[tuple[Member, Endpoint], ...]:
        """Each worker as a member of its switch, and that switch's addresses."""
        found = {
            name: (member, switch.endpoint)
            for switch in self.switches
            for member, name in zip(switch.part.members, switch.members, strict=True)
            if isinstance(name, int)
        }
        return tuple(found[worker] for worker in range(len(found)))

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Addresses of all switches and workers by ``switch NAME`` and ``worker NUMBER``."""
        switches = {f"switch {switch.name}": switch.endpoint for switch in self.switches}
        return switches | {f"worker {n}": member.endpoint for n, (member, _) in enumerate(self.workers)}

    def distances(self, length: Callable[[TreeSwitch], T]) -> dict[str, T]:
        """Return the distance of each switch from the root by its name; ``length``: of the link to a parent."""
        by_name = {switch.name: switch for switch in self.switches}
        distances: dict[str, T] = {self.root.name: 0}
        for switch in self.switches:
            for name in switch.members:
                if isinstance(name, str):
                    distances[name] = distances[switch.name] + length(by_name[name])
        return distances

    def with_job(self, job: int, base: int, slots: int) -> Tree:
        """Return the tree with another job id and other slots. Raises ValueError if they are out of range."""
        parts = (replace(switch.part, id=job, base=base, slots=slots) for switch in self.switches)
        return Tree(
            tuple(replace(switch, part=part) for switch, part in zip(self.switches, parts, strict=True))
        )


def switch_endpoint(number: int) -> Endpoint:
    """Return the default addresses of a tree's switch; those of the root are 02:00:00:01:00:00 and 10.1.0.1."""
    return Endpoint(mac=0x02_00_00_01_00_00 + number, ip=0x0A_01_00_01 + number)


def tree_of(shape: Shape, *, job: int, base: int, slots: int) -> Tree:
    """Return a tree with default addresses.

    Workers are numbered from left to right. Member i of a switch is at port i and has bit i; the uplink is at
    the port after the last member's. The root is called ``switch``, its members ``switch-0``, ``switch-1``, the
    first member of that ``switch-1-0``. Raises ValueError for a wrong shape, job id or slot range.
    """
    check_shape(shape)
    if workers_of(shape) > MAX_TREE_WORKERS:
        raise ValueError(f"a tree has at most {MAX_TREE_WORKERS:,} workers, not {workers_of(shape):,}")
    return Tree(tuple(_subtree(shape, "switch", None, Job(job, base, slots, _NOBODY), count(), count())))


_NOBODY = (Member(0, 1, worker_endpoint(0)),)  # a job has at least one member


def _subtree(
    shape: Shape, name: str, uplink: Uplink | None, job: Job, switches: Iterator[int], workers: Iterator[int]
) -> list[TreeSwitch]:
    """Return a switch and those below; ``switches`` and ``workers`` number them."""
    endpoint = switch_endpoint(next(switches))
    below: list[TreeSwitch] = []
    names: list[int | str] = []
    endpoints: list[Endpoint] = []
    if isinstance(shape, int):
        names += islice(workers, shape)
        endpoints += map(worker_endpoint, cast("list[int]", names))
    else:
        for place, part in enumerate(shape):
            link = Uplink(_members_of(part), 1 << place, endpoint)
            subtree = _subtree(part, f"{name}-{place}", link, job, switches, workers)
            names.append(subtree[0].name)
            endpoints.append(subtree[0].endpoint)
            below += subtree
    members = tuple(Member(place, 1 << place, member) for place, member in enumerate(endpoints))
    part_of_job = replace(job, members=members, uplink=uplink)
    return [TreeSwitch(name, endpoint, part_of_job, tuple(names)), *below]


def _members_of(shape: Shape) -> int:
    return shape if isinstance(shape, int) else len(shape)
