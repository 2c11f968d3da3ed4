"""Simulated annealing of a placement: many cheap steps, as opposed to CP-SAT's few good ones.

The target is a period. Overuse of a device's resources costs energy in shares of the device. Connections beyond
P, and joins whose paths differ in hops, cost energy too. At energy 0 all rules are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from fanin.planner.cluster import Part
from fanin.planner.search import kernel
from fanin.planner.search.choices import Choice, connection_takes, constrained
from fanin.planner.search.instance import Instance, Option, Placement, paths_apart
from fanin.planner.search.problem import limits_at

COLD = 0.002  # final temperature, in shares of a device


@dataclass(frozen=True)
class Annealing:
    """One annealing: from ``start`` towards ``period`` (ticks), in at most ``steps`` steps."""

    instance: Instance
    start: Placement
    period: int
    seed: int
    steps: int
    hot: float  #: initial temperature; a high one forgets the start


def anneal(job: Annealing) -> Placement | None:
    """Return a placement with at most that period; None if none is found."""
    instance, cluster = job.instance, job.instance.cluster
    nodes = range(len(instance.model.nodes))
    options = [[instance.options(n, part, job.period, job.period) for n in nodes] for part in cluster.parts]
    if any(not any(rows[n] for rows in options) for n in nodes):
        return None
    part_of = [cluster.parts.index(device.part) for device in cluster.devices]
    way = []
    for node, (device, choice) in enumerate(zip(job.start.devices, job.start.choices, strict=True)):
        way.append(_most_like(options[part_of[device]][node], choice, cluster.parts[part_of[device]]))
        if way[-1] < 0:
            return None
    fixed = _fixed(instance, job.period, options, part_of)
    if not len(fixed.movable):
        return None
    state = _state(fixed, job.start, way, len(list(paths_apart(instance.model))))
    kernel.begin(fixed, state)
    if not kernel.anneal(fixed, state, job.seed, job.steps, job.hot, COLD):
        return None
    built = enumerate(zip(state.on.tolist(), state.way.tolist(), strict=True))
    return Placement(tuple(state.on.tolist()), tuple(options[part_of[d]][n][w].choice for n, (d, w) in built))


def _most_like(options: tuple[Option, ...], choice: Choice, part: Part) -> int:
    """Return the cheapest way that keeps the storage of parameters, if possible; -1 if there is no way."""
    same = [k for k, option in enumerate(options) if option.choice.storage == choice.storage]
    found = same or range(len(options))
    return min(found, key=lambda k: constrained(options[k].choice.cost, part), default=-1)


def _fixed(
    instance: Instance, period: int, options: list[list[tuple[Option, ...]]], part_of: list[int]
) -> kernel.Fixed:
    model, cluster = instance.model, instance.cluster
    parts, nodes = cluster.parts, range(len(model.nodes))
    limits = [limits_at(instance, part, period) for part in parts]
    most_ways = max(len(ways) for rows in options for ways in rows)
    columns = max(map(len, limits))
    costs = np.zeros((len(parts), len(nodes), most_ways, columns), np.int64)
    like = np.full((len(parts), len(parts), len(nodes), most_ways), -1, np.int64)
    for p, part in enumerate(parts):
        for n in nodes:
            for w, option in enumerate(options[p][n]):
                row = constrained(option.choice.cost, part)
                costs[p, n, w, : len(row)] = row
                for q, other in enumerate(parts):
                    like[p, q, n, w] = w if p == q else _most_like(options[q][n], option.choice, other)
    room, taken = np.zeros((2, len(part_of), columns), np.int64)
    for d, p in enumerate(part_of):
        room[d, : len(limits[p])] = limits[p]
        taken[d, : len(limits[p])] = connection_takes(parts[p])
    ends = [
        [(b, e.bits, k) for k, e in enumerate(model.edges) for a, b in _both(e.source, e.target) if a == n]
        for n in nodes
    ]
    joins: list[list[tuple[int, int]]] = [[] for _ in model.edges]
    for join, pair in enumerate(paths_apart(model)):
        for sign, edges in zip((1, -1), pair, strict=True):
            for edge in edges:
                joins[edge].append((join, sign))
    return kernel.Fixed(
        part=np.array(part_of),
        limits=room,
        taken=taken,
        network=np.array([d.part.network * period // instance.ticks for d in cluster.devices]),
        most=np.array([d.part.connections for d in cluster.devices]),
        costs=costs,
        ways=np.array([[len(ways) for ways in rows] for rows in options]),
        like=like,
        movable=np.array([n for n in nodes if n not in model.pinned], np.int64),
        stays=np.array([n in model.pinned for n in nodes]),
        **_rows("ends", "first_end", ends, 3),
        **_rows("joins", "first_join", joins, 2),
    )


def _both(a: int, b: int) -> tuple[tuple[int, int], ...]:
    return (a, b), (b, a)


def _rows(
    name: str, first: str, lists: Sequence[Sequence[tuple[int, ...]]], width: int
) -> dict[str, kernel.Ints]:
    """Return the lists of tuples concatenated, and the start of each list."""
    flat = [row for rows in lists for row in rows]
    return {
        name: np.array(flat, np.int64).reshape(-1, width),
        first: np.array([0, *accumulate(map(len, lists))], np.int64),
    }


def _state(fixed: kernel.Fixed, start: Placement, way: list[int], joins: int) -> kernel.State:
    devices = len(fixed.part)
    return kernel.State(
        on=np.array(start.devices, np.int64),
        way=np.array(way, np.int64),
        load=np.zeros((devices, fixed.limits.shape[1]), np.int64),
        net=np.zeros(devices, np.int64),
        connections=np.zeros(devices, np.int64),
        between=np.zeros((devices, devices), np.int64),
        apart=np.zeros(joins, np.int64),
    )
