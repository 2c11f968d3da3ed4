"""Priorities of connections (NADA, section IV: one PFC priority each).

They are an edge colouring of the graph whose vertices are devices and whose edges are connections: connections
with a common device have different priorities.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from fanin.planner.search.instance import Instance, Placement

EFFORT = 10.0  # limit of the search in CP-SAT's deterministic seconds, the same on every machine


def cut_edges(instance: Instance, placement: Placement) -> list[int]:
    """Return the indices of the edges whose ends are on different devices."""
    devices = placement.devices
    edges = enumerate(instance.model.edges)
    return [index for index, edge in edges if devices[edge.source] != devices[edge.target]]


def choose_priorities(instance: Instance, placement: Placement) -> dict[int, int] | None:
    """Return a priority by index of each cut edge; None if no assignment is found.

    No two cut edges of a device have the same priority. A priority is at least 0, and below the ``connections``
    of both devices.
    """
    cut = cut_edges(instance, placement)
    devices, edges = placement.devices, instance.model.edges
    ends = [(devices[edges[index].source], devices[edges[index].target]) for index in cut]
    limits = [device.part.connections for device in instance.cluster.devices]
    priorities = _greedy(ends, limits)
    if priorities is None:
        priorities = _search(ends, limits)
    return None if priorities is None else dict(zip(cut, priorities, strict=True))


def _greedy(ends: Sequence[tuple[int, int]], limits: Sequence[int]) -> list[int] | None:
    """Give each edge in order the lowest priority that is free at both devices; None if an edge has none.

    ``ends``: devices of each edge.
    ``limits``: number of priorities of each device.
    """
    used: list[set[int]] = [set() for _ in limits]
    priorities = []
    for a, b in ends:
        free = [p for p in range(min(limits[a], limits[b])) if p not in used[a] and p not in used[b]]
        if not free:
            return None
        priorities.append(free[0])
        used[a].add(free[0])
        used[b].add(free[0])
    return priorities


def _search(ends: Sequence[tuple[int, int]], limits: Sequence[int]) -> list[int] | None:
    """Return the priorities that CP-SAT finds; None if there are none, or none is found within ``EFFORT``.

    ``ends``: devices of each edge.
    ``limits``: number of priorities of each device.
    """
    cp = cp_model.CpModel()
    if any(min(limits[a], limits[b]) < 1 for a, b in ends):
        return None
    priorities = [cp.new_int_var(0, min(limits[a], limits[b]) - 1, "") for a, b in ends]
    for device in range(len(limits)):
        cp.add_all_different([p for p, pair in zip(priorities, ends, strict=True) if device in pair])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    if solver.solve(cp) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [solver.value(p) for p in priorities]
