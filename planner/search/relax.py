"""Bound on the throughput: the devices of each part are pooled, and edges are ignored."""

from __future__ import annotations

from ortools.sat.python import cp_model

from fanin.planner.cluster import Part
from fanin.planner.search.choices import constrained, front
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import limits_of

PRECISION = 200  # bisection narrows the period to one part in this many before it is minimised
POOL_EFFORT = 5.0  # deterministic seconds per pooled problem


def least_period(instance: Instance) -> int | None:
    """Return a lower bound, in ticks, of all placements' periods; None if the model fits at no period.

    Nodes fixed to the host must fit the host's device; all others must fit the devices of their part together.
    """
    high = slowest(instance)
    if _pooled(instance, high, high) is None:
        return None
    low = 0
    while high - low > max(high // PRECISION, 1):
        middle = (max(low, high // 4) + high) // 2
        if _pooled(instance, middle, middle) is None:
            low = middle
        else:
            high = middle
    found = _pooled(instance, low + 1, high)
    return found if found is not None else low + 1


def slowest(instance: Instance) -> int:
    """Return a period, in ticks, at least that of a placement with every layer at its slowest."""
    total = 1
    for node, context in zip(instance.model.nodes, instance.model.contexts, strict=True):
        total += max(
            (
                choice.cost.cycles * instance.ticks // part.clock
                + (choice.cost.dram_read + choice.cost.dram_write) * instance.per_bit(part.dram)
                for part in instance.cluster.parts
                for choice in front(node.layer, part, context)
            ),
            default=0,
        )
    slow = max((instance.per_bit(part.network) for part in instance.cluster.parts), default=0)
    return total + 2 * slow * sum(edge.bits for edge in instance.model.edges)


def _pooled(instance: Instance, low: int, high: int) -> int | None:
    """Return the least period in [low, high] of the pooled problem, or a bound on it; None if infeasible."""
    cp = cp_model.CpModel()
    period = cp.new_int_var(low, high, "period")
    cluster = instance.cluster
    host = cluster.devices[cluster.host].part
    costs: dict[Part, list[tuple[tuple[int, ...], cp_model.IntVar, bool]]] = {
        part: [] for part in cluster.parts
    }
    for node in range(len(instance.model.nodes)):
        pinned = node in instance.model.pinned
        ways = []
        for part in [host] if pinned else cluster.parts:
            for option in instance.options(node, part, low, high):
                way = cp.new_bool_var("")
                ways.append((option.ticks - low, way))
                costs[part].append((constrained(option.choice.cost, part), way, pinned))
        if not ways:
            return None
        cp.add_exactly_one([way for _, way in ways])
        cp.add(sum(late * way for late, way in ways) <= period - low)
    for part in cluster.parts:
        count = sum(device.part == part for device in cluster.devices)
        _limit(cp, instance, part, costs[part], count, period)
        if part == host:
            _limit(cp, instance, part, [cost for cost in costs[part] if cost[2]], 1, period)
    cp.minimize(period)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = POOL_EFFORT
    status = solver.solve(cp)
    if status == cp_model.INFEASIBLE:
        return None
    return max(low, round(solver.best_objective_bound)) if status != cp_model.UNKNOWN else low


def _limit(
    cp: cp_model.CpModel,
    instance: Instance,
    part: Part,
    costs: list[tuple[tuple[int, ...], cp_model.IntVar, bool]],
    count: int,
    period: cp_model.IntVar,
) -> None:
    per_bit = instance.per_bit(part.dram)
    for column, (_, limit) in enumerate(limits_of(part)):
        if limit is not None:
            cp.add(sum(cost[column] * way for cost, way, _ in costs) <= limit * count)
        else:
            cp.add(sum(per_bit * cost[column] * way for cost, way, _ in costs) <= period * count)
