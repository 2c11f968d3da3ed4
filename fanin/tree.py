"""Aggregation trees: the part of each switch in a job whose workers are at several switches
(docs/systems/trees.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TypeAlias, cast

from fanin.job import Job, Member, Uplink, worker_endpoint
from fanin.wire.aggregation import MAX_WORKERS
from fanin.wire.ethernet import Endpoint

MAX_LEVELS = 4  #: switches on the way from a worker to the root, both included
_SHAPE = r"([0-9]{1,3}x){0,8}[0-9]{1,3}(\+[0-9]{1,3}){0,99}"
#: A switch with so many workers, or a switch with such switches as members.
Shape: TypeAlias = "int | tuple[Shape, ...]"


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


def shape_of(value: object) -> Shape:
    """Return the shape that JSON has as a number or nested lists. Raises ValueError."""
    if isinstance(value, list):
        shape: Shape = tuple(map(shape_of, value))
    elif isinstance(value, int):
        shape = value
    else:
        raise ValueError(f"a tree must be a number or a list, not {value!r}")
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


def workers_of(shape: Shape) -> int:
    """Return the number of workers."""
    return shape if isinstance(shape, int) else sum(map(workers_of, shape))


def max_members_of(shape: Shape) -> int:
    """Return the greatest number of members of a switch."""
    return max(map(_members_of, _parts(shape)))


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
    """

    name: str
    endpoint: Endpoint
    part: Job
    members: tuple[int | str, ...]


def switch_endpoint(number: int) -> Endpoint:
    """Return the default addresses of a tree's switch; those of the root are 02:00:00:01:00:00 and 10.1.0.1."""
    return Endpoint(mac=0x02_00_00_01_00_00 + number, ip=0x0A_01_00_01 + number)


def tree_of(shape: Shape, *, job: int, base: int, slots: int) -> list[TreeSwitch]:
    """Return the switches of a tree with default addresses, the root first and parents before their members.

    Workers are numbered from left to right. Member i of a switch is at port i and has bit i; the uplink is at
    the port after the last member's. The root is called ``switch``, its members ``switch-0``, ``switch-1``, the
    first member of that ``switch-1-0``. Raises ValueError for a wrong shape, job id or slot range.
    """
    check_shape(shape)
    return _subtree(shape, "switch", None, Job(job, base, slots, _NOBODY), count(), count())


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
