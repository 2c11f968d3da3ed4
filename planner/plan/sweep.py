"""Sweep: plans for growing clusters and model parallelism, each started from the best smaller plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction

from fanin.base.errors import CheckFailed, InputError
from fanin.planner.cluster import Cluster
from fanin.planner.model.graph import Model
from fanin.planner.model.split import limiting_groups, split
from fanin.planner.plan.plan import Plan, make_plan, overfull_dram
from fanin.planner.search.instance import Instance, Placement
from fanin.planner.search.limits import Limits
from fanin.planner.search.relax import period_bound
from fanin.planner.search.search import GAP_TOLERANCE

#: callback with number of devices, degree of model parallelism, best throughput and its bound
Report = Callable[[int, int, float, float], None]


def sweep(
    model: Model,
    cluster: Cluster,
    counts: Sequence[int],
    factors: Sequence[int],
    limits: Limits,
    *,
    batch: int = 256,
    pool: ProcessPoolExecutor | None = None,
    report: Report = lambda devices, factor, best, bound: None,
) -> Iterator[tuple[int, int, Plan]]:
    """Yield (devices, model parallelism, plan), ascending. Throughput never falls with more of either.

    With model parallelism k, limiting groups of layers are split in k parts if that improves on earlier plans.

    ``counts``: numbers of devices.
    ``factors``: degrees of model parallelism.
    ``limits``: limits of each search.
    """
    best: dict[tuple[int, int], Plan] = {}
    for factor in sorted(factors):
        for count in sorted(counts):
            subcluster = cluster.first(count)
            equal = [plan for (n, k), plan in best.items() if n == count and k < factor]
            smaller = [moved_to(plan, subcluster) for (n, k), plan in best.items() if n < count and k <= factor]

            def report_plan(throughput: float, bound: float, count: int = count, factor: int = factor) -> None:
                report(count, factor, throughput, bound)

            plan = best_plan(
                model, subcluster, factor, limits, equal=equal, smaller=smaller, pool=pool, report=report_plan
            )
            best[count, factor] = plan = replace(plan, batch=batch)
            if overfull := overfull_dram(plan):
                raise CheckFailed(overfull)
            yield count, factor, plan


def best_plan(
    model: Model,
    cluster: Cluster,
    factor: int,
    limits: Limits,
    *,
    equal: Sequence[Plan] = (),
    smaller: Sequence[Plan] = (),
    pool: ProcessPoolExecutor | None = None,
    report: Callable[[float, float], None] = lambda best, bound: None,
) -> Plan:
    """Return the best of the plan with split groups, the plan of the whole model, and known plans.

    ``factor``: number of parts of each limiting group.
    ``equal``: plans on this cluster with less model parallelism, including the whole model.
    ``smaller``: plans with fewer devices, moved to this cluster by :func:`moved_to`.

    The bound holds for all these models.
    """
    plans, bounds = [*equal, *smaller], [plan.bound for plan in equal]
    for parts, variant in _variants(model, cluster, factor, bool(equal)):
        instance = Instance(variant, cluster)
        bound_ticks = period_bound(instance)
        best_throughput = max((plan.throughput for plan in plans), default=0)
        if bound_ticks is not None and instance.ticks / bound_ticks <= best_throughput * (1 + GAP_TOLERANCE):
            bounds.append(Fraction(instance.ticks, bound_ticks))
            continue
        starts = [plan for plan in plans if plan.model.nodes == variant.nodes]
        start = max(starts, key=lambda plan: plan.throughput).placement if starts else None
        try:
            plan = make_plan(instance, limits, start=start, pool=pool, report=report)
        except InputError:
            if not plans:
                raise
            continue
        except CheckFailed:  # neither found in time nor proved impossible
            if not plans:
                raise
            bounds += [Fraction(instance.ticks, bound_ticks)] if bound_ticks else []
            continue
        plans.append(replace(plan, split=parts))
        bounds.append(plan.bound)
    best = max(plans, key=lambda plan: (plan.throughput, -plan.split, -plan.used))
    return replace(best, bound=max(best.throughput, *bounds))


def _variants(model: Model, cluster: Cluster, factor: int, whole_is_known: bool) -> Iterator[tuple[int, Model]]:
    """Yield (degree of model parallelism, model) of each model to plan."""
    if not whole_is_known:
        yield 1, model
    groups = limiting_groups(Instance(model, cluster)) if factor > 1 else []
    if groups:
        yield factor, split(model, groups, factor)


def moved_to(plan: Plan, cluster: Cluster) -> Plan:
    """Return the plan on a larger cluster, which must have all of the plan's devices."""
    names = [device.name for device in cluster.devices]
    positions = [names.index(device.name) for device in plan.instance.cluster.devices]
    placement = Placement(tuple(positions[d] for d in plan.placement.devices), plan.placement.choices)
    return replace(plan, instance=Instance(plan.model, cluster), placement=placement)
