"""Bound on the period from a relaxed problem: the devices of each part are pooled, and edges are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ortools.sat.python import cp_model

from fanin.planner.cluster import Part
from fanin.planner.search.choices import limited_costs, pareto_front
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import limits_of

PRECISION = 200  # bisection narrows the period to one part in PRECISION before it is minimised
POOL_EFFORT = 5.0  # deterministic seconds per pooled problem


class _NodeOption(NamedTuple):
    """Option of a node on a part."""

    costs: tuple[int, ...]  #: in the order of ``limited_costs``
    variable: cp_model.IntVar  #: 1 if the node has this option
    pinned: bool  #: true if the node is pinned to the host's device


def period_bound(instance: Instance) -> int | None:
    """Return a lower bound, in ticks, of the periods of all placements; None if the model fits at no period.

    Nodes pinned to the host must fit the host's device. All nodes must fit the pooled devices of their part.
    """
    high = longest_period(instance)
    if _pooled(instance, high, high) is None:
        return None
    low = 0
    while high - low > max(high // PRECISION, 1):
        middle = (max(low, high // 4) + high) // 2  # at least 5/8 of ``high``, since ``low`` starts at 0
        if _pooled(instance, middle, middle) is None:
            low = middle
        else:
            high = middle
    exact = _pooled(instance, low + 1, high)
    return exact if exact is not None else low + 1


def longest_period(instance: Instance) -> int:
    """Return an upper bound, in ticks, of the periods of placements, in which each layer is at its slowest."""
    total = 1
    for node, context in zip(instance.model.nodes, instance.model.contexts, strict=True):
        total += max(
            (
                choice.cost.cycles * instance.ticks // part.clock
                + (choice.cost.dram_read + choice.cost.dram_write) * instance.per_bit(part.dram)
                for part in instance.cluster.parts
                for choice in pareto_front(node.layer, part, context)
            ),
            default=0,
        )
    bit_ticks = max((instance.per_bit(part.network) for part in instance.cluster.parts), default=0)
    return total + 2 * bit_ticks * sum(edge.bits for edge in instance.model.edges)


def _pooled(instance: Instance, low: int, high: int) -> int | None:
    """Return a lower bound within [low, high] of the pooled problem's period; None if it is infeasible."""
    cp = cp_model.CpModel()
    period = cp.new_int_var(low, high, "period")
    cluster = instance.cluster
    host = cluster.devices[cluster.host].part
    node_options: dict[Part, list[_NodeOption]] = {part: [] for part in cluster.parts}
    for node in range(len(instance.model.nodes)):
        pinned = node in instance.model.pinned
        variables = []
        for part in [host] if pinned else cluster.parts:
            for option in instance.options(node, part, low, high):
                variable = cp.new_bool_var("")
                variables.append((option.ticks - low, variable))
                costs = limited_costs(option.choice.cost, part)
                node_options[part].append(_NodeOption(costs, variable, pinned))
        if not variables:
            return None
        cp.add_exactly_one([variable for _, variable in variables])
        cp.add(sum(extra_ticks * variable for extra_ticks, variable in variables) <= period - low)
    for part in cluster.parts:
        count = sum(device.part == part for device in cluster.devices)
        _limit(cp, instance, part, node_options[part], count, period)
        if part == host:
            pinned_options = [option for option in node_options[part] if option.pinned]
            _limit(cp, instance, part, pinned_options, 1, period)
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
    node_options: Sequence[_NodeOption],
    count: int,
    period: cp_model.IntVar,
) -> None:
    """Limit the total costs of the chosen options to the resources of ``count`` devices of a part."""
    per_bit = instance.per_bit(part.dram)
    for column, (_, limit) in enumerate(limits_of(part)):
        load = sum(option.costs[column] * option.variable for option in node_options)
        if limit is not None:
            cp.add(load <= limit * count)
        else:  # bits to or from DRAM, limited by the period
            cp.add(per_bit * load <= period * count)
