"""Simulated annealing of a placement: many cheap steps, where CP-SAT makes few good ones.

The target is a period. Excess use of a device's resources costs energy, in shares of the device. Connections
beyond a device's limit, and joins whose paths differ in hops, cost energy too. At energy 0 the placement keeps
all rules. This module converts the instance to arrays; ``kernel`` has the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from fanin.planner.cluster import Part
from fanin.planner.search import kernel
from fanin.planner.search.choices import Choice, connection_cost, limited_costs
from fanin.planner.search.instance import Instance, Option, Placement, divergent_paths
from fanin.planner.search.problem import limits_at

COLD = 0.002  # final temperature; energies are shares of a device


@dataclass(frozen=True)
class Annealing:
    """Input of an annealing."""

    instance: Instance
    start: Placement
    period: int  #: target period in ticks
    seed: int
    steps: int  #: maximum number of steps
    hot: float  #: initial temperature; at a high one, the start has no influence


def anneal(job: Annealing) -> Placement | None:
    """Return a placement with at most the target period; None if none is found."""
    instance, cluster = job.instance, job.instance.cluster
    nodes = range(len(instance.model.nodes))
    options = [[instance.options(n, part, job.period, job.period) for n in nodes] for part in cluster.parts]
    if any(not any(rows[n] for rows in options) for n in nodes):
        return None
    part_of = [cluster.parts.index(device.part) for device in cluster.devices]
    option_indices = []
    for node, (device, choice) in enumerate(zip(job.start.devices, job.start.choices, strict=True)):
        option_indices.append(
            _similar_option(options[part_of[device]][node], choice, cluster.parts[part_of[device]])
        )
        if option_indices[-1] < 0:
            return None
    fixed = _fixed(instance, job.period, options, part_of)
    if not len(fixed.movable):
        return None
    state = _state(fixed, job.start, option_indices, len(list(divergent_paths(instance.model))))
    kernel.begin(fixed, state)
    if not kernel.anneal(fixed, state, job.seed, job.steps, job.hot, COLD):
        return None
    assigned = enumerate(zip(state.device.tolist(), state.option.tolist(), strict=True))
    return Placement(
        tuple(state.device.tolist()), tuple(options[part_of[d]][n][w].choice for n, (d, w) in assigned)
    )


def _similar_option(options: tuple[Option, ...], choice: Choice, part: Part) -> int:
    """Return the index of the cheapest option, if possible with ``choice``'s storage; −1 for none."""
    same_storage = [k for k, option in enumerate(options) if option.choice.storage == choice.storage]
    candidates = same_storage or range(len(options))
    return min(candidates, key=lambda k: limited_costs(options[k].choice.cost, part), default=-1)


def _fixed(
    instance: Instance, period: int, options: list[list[tuple[Option, ...]]], part_of: list[int]
) -> kernel.Fixed:
    """Return the kernel's constants.

    ``options``: options of each node, by part. ``part_of``: index of each device's part.
    """
    model, cluster = instance.model, instance.cluster
    parts, nodes = cluster.parts, range(len(model.nodes))
    limits = [limits_at(instance, part, period) for part in parts]
    max_options = max(len(node_options) for rows in options for node_options in rows)
    columns = max(map(len, limits))
    costs = np.zeros((len(parts), len(nodes), max_options, columns), np.int64)
    similar = np.full((len(parts), len(parts), len(nodes), max_options), -1, np.int64)
    # Indices as in ``kernel.Fixed``: device d, part p, node n, option o.
    for p, part in enumerate(parts):
        for n in nodes:
            for o, option in enumerate(options[p][n]):
                row = limited_costs(option.choice.cost, part)
                costs[p, n, o, : len(row)] = row
                for q, other in enumerate(parts):
                    similar[p, q, n, o] = o if p == q else _similar_option(options[q][n], option.choice, other)
    device_limits, connection_costs = np.zeros((2, len(part_of), columns), np.int64)
    for d, p in enumerate(part_of):
        device_limits[d, : len(limits[p])] = limits[p]
        connection_costs[d, : len(limits[p])] = connection_cost(parts[p])
    ends: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    for number, edge in enumerate(model.edges):
        ends[edge.source].append((edge.target, edge.bits, number))
        ends[edge.target].append((edge.source, edge.bits, number))
    joins: list[list[tuple[int, int]]] = [[] for _ in model.edges]
    for join, pair in enumerate(divergent_paths(model)):
        for sign, path in zip((1, -1), pair, strict=True):
            for number in path:
                joins[number].append((join, sign))
    return kernel.Fixed(
        part=np.array(part_of),
        limits=device_limits,
        connection_cost=connection_costs,
        network=np.array([d.part.network * period // instance.ticks for d in cluster.devices]),
        max_connections=np.array([d.part.connections for d in cluster.devices]),
        costs=costs,
        option_count=np.array([[len(node_options) for node_options in rows] for rows in options]),
        similar_option=similar,
        movable=np.array([n for n in nodes if n not in model.pinned], np.int64),
        is_pinned=np.array([n in model.pinned for n in nodes]),
        **_rows("ends", "first_end", ends, 3),
        **_rows("joins", "first_join", joins, 2),
    )


def _rows(
    name: str, first: str, lists: Sequence[Sequence[tuple[int, ...]]], width: int
) -> dict[str, kernel.Ints]:
    """Return the concatenated lists of tuples as array ``name``, and the start of each list as ``first``."""
    flat = [row for rows in lists for row in rows]
    return {
        name: np.array(flat, np.int64).reshape(-1, width),
        first: np.array([0, *accumulate(map(len, lists))], np.int64),
    }


def _state(fixed: kernel.Fixed, start: Placement, option_indices: list[int], joins: int) -> kernel.State:
    """Return the kernel's state at a placement, before ``kernel.begin``. ``joins``: number of joins."""
    devices = len(fixed.part)
    return kernel.State(
        device=np.array(start.devices, np.int64),
        option=np.array(option_indices, np.int64),
        load=np.zeros((devices, fixed.limits.shape[1]), np.int64),
        network=np.zeros(devices, np.int64),
        connections=np.zeros(devices, np.int64),
        between=np.zeros((devices, devices), np.int64),
        hop_difference=np.zeros(joins, np.int64),
    )
