"""Priorities of connections: an edge colouring of the devices (NADA, section IV: one PFC priority each)."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from fanin.planner.search.instance import Instance, Placement

EFFORT = 10.0  # deterministic seconds


def cut_edges(instance: Instance, placement: Placement) -> list[int]:
    """Return the indices of the edges whose ends are on different devices."""
    devices = placement.devices
    return [number for number, e in enumerate(instance.model.edges) if devices[e.source] != devices[e.target]]


def choose_priorities(instance: Instance, placement: Placement) -> dict[int, int] | None:
    """Return a priority for each cut edge, unique at both devices; None if none is found.

    A priority is below the ``connections`` of both devices.
    """
    edges = cut_edges(instance, placement)
    devices, all_edges = placement.devices, instance.model.edges
    ends = [(devices[all_edges[e].source], devices[all_edges[e].target]) for e in edges]
    limits = [device.part.connections for device in instance.cluster.devices]
    first = _greedy(ends, limits)
    priorities = first if first is not None else _search(ends, limits)
    return dict(zip(edges, priorities, strict=True)) if priorities is not None else None


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
    """Return the priorities that CP-SAT finds; None without a solution. Arguments: as for :func:`_greedy`."""
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
