"""Sweeps: plans for growing clusters and model parallelism, each starting from the best smaller one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction

from fanin.base.errors import CheckFailed, InputError
from fanin.planner.cluster import Cluster
from fanin.planner.model.graph import Model
from fanin.planner.model.split import limiting, split
from fanin.planner.plan.plan import Plan, make_plan, overfull_dram
from fanin.planner.search.instance import Instance, Placement
from fanin.planner.search.limits import Limits
from fanin.planner.search.relax import least_period
from fanin.planner.search.search import SAME

Say = Callable[[int, int, float, float], None]  #: called with devices, parts, best throughput, bound


def sweep(
    model: Model,
    cluster: Cluster,
    counts: Sequence[int],
    factors: Sequence[int],
    limits: Limits,
    *,
    batch: int = 256,
    pool: ProcessPoolExecutor | None = None,
    say: Say = lambda devices, ways, best, bound: None,
) -> Iterator[tuple[int, int, Plan]]:
    """Yield (devices, model parallelism, plan), ascending. Throughput never falls with more of either.

    With model parallelism k, the limiting groups of a plan are split k ways if that improves on earlier plans.
    """
    best: dict[tuple[int, int], Plan] = {}
    for ways in sorted(factors):
        for count in sorted(counts):
            here = cluster.first(count)
            equal = [plan for (n, k), plan in best.items() if n == count and k < ways]
            smaller = [moved(plan, here) for (n, k), plan in best.items() if n < count and k <= ways]

            def told(throughput: float, bound: float, count: int = count, ways: int = ways) -> None:
                say(count, ways, throughput, bound)

            plan = best_plan(model, here, ways, limits, equal=equal, smaller=smaller, pool=pool, say=told)
            best[count, ways] = plan = replace(plan, batch=batch)
            if overfull := overfull_dram(plan):
                raise CheckFailed(overfull)
            yield count, ways, plan


def best_plan(
    model: Model,
    cluster: Cluster,
    ways: int,
    limits: Limits,
    *,
    equal: Sequence[Plan] = (),
    smaller: Sequence[Plan] = (),
    pool: ProcessPoolExecutor | None = None,
    say: Callable[[float, float], None] = lambda best, bound: None,
) -> Plan:
    """Return the best plan with limiting groups split ``ways`` ways, with the whole model, or of the known
    ones.

    - ``equal``: plans on this cluster with less parallelism, including the whole model.
    - ``smaller``: plans with fewer devices, ``moved`` to this cluster.

    The bound holds for all these models.
    """
    plans, bounds = [*equal, *smaller], [plan.bound for plan in equal]
    for parts, variant in _variants(model, cluster, ways, bool(equal)):
        instance = Instance(variant, cluster)
        least = least_period(instance)
        top = max((plan.throughput for plan in plans), default=0)
        if least is not None and instance.ticks / least <= top * (1 + SAME):
            bounds.append(Fraction(instance.ticks, least))
            continue
        starts = [plan for plan in plans if plan.model.nodes == variant.nodes]
        start = max(starts, key=lambda plan: plan.throughput).placement if starts else None
        try:
            plan = make_plan(instance, limits, start=start, pool=pool, say=say)
        except InputError:
            if not plans:
                raise
            continue
        except CheckFailed:  # neither found in time nor proved impossible
            if not plans:
                raise
            bounds += [Fraction(instance.ticks, least)] if least else []
            continue
        plans.append(replace(plan, split=parts))
        bounds.append(plan.bound)
    best = max(plans, key=lambda plan: (plan.throughput, -plan.split, -plan.used))
    return replace(best, bound=max(best.throughput, *bounds))


def _variants(model: Model, cluster: Cluster, ways: int, whole_is_known: bool) -> Iterator[tuple[int, Model]]:
    """Yield (parts, model) of the models to plan."""
    if not whole_is_known:
        yield 1, model
    groups = limiting(Instance(model, cluster)) if ways > 1 else []
    if groups:
        yield ways, split(model, groups, ways)


def moved(plan: Plan, cluster: Cluster) -> Plan:
    """Return a plan on a larger cluster, which has all of the plan's devices."""
    names = [device.name for device in cluster.devices]
    here = [names.index(device.name) for device in plan.instance.cluster.devices]
    placement = Placement(tuple(here[d] for d in plan.placement.devices), plan.placement.choices)
    return replace(plan, instance=Instance(plan.model, cluster), placement=placement)
