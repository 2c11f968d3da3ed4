"""Sweep: plans for growing clusters and model parallelism, each started from the best smaller plan."""

from __future__ import annotations

import functools
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
    """Yield (number of devices, degree of model parallelism, plan) by ascending degree, then number.

    With degree k, limiting groups of layers are split in k parts if that improves on plans of lower degrees. A
    plan is at least as fast as those of fewer devices and lower degrees, since they are among its candidates.

    - ``model``, ``cluster``: model to place, and cluster with all devices.
    - ``counts``: numbers of devices to plan for; the first n devices of the cluster are used.
    - ``factors``: degrees of model parallelism; 1 is the whole model.
    - ``limits``: limits of each search.
    - ``batch``: frames of a batch, for the time of updates.
    - ``pool``: processes for the searches.
    - ``report``: called when a search has found a better plan or bound.

    Raises CheckFailed if a plan needs more DRAM than a device has, and the errors of :func:`best_plan`.
    """
    best: dict[tuple[int, int], Plan] = {}
    for factor in sorted(factors):
        for count in sorted(counts):
            subcluster = cluster.first(count)
            equal = [plan for (n, k), plan in best.items() if n == count and k < factor]
            smaller = [moved_to(plan, subcluster) for (n, k), plan in best.items() if n < count and k <= factor]

            plan = best_plan(
                model,
                subcluster,
                factor,
                limits,
                equal=equal,
                smaller=smaller,
                pool=pool,
                report=functools.partial(report, count, factor),
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

    The plan's bound holds for all these models: no plan of any of them is faster. Raises InputError if no model
    fits the cluster, and CheckFailed if none was placed within the limits.
    """
    plans, bounds = [*equal, *smaller], [plan.bound for plan in equal]
    for parts, variant in _variants(model, cluster, factor, bool(equal)):
        instance = Instance(variant, cluster)
        bound_ticks = period_bound(instance)
        best_throughput = max((plan.throughput for plan in plans), default=0)
        if bound_ticks is not None and instance.ticks / bound_ticks <= best_throughput * (1 + GAP_TOLERANCE):
            bounds.append(Fraction(instance.ticks, bound_ticks))
            continue  # no search: a known plan is within the tolerance of this model's bound
        starts = [plan for plan in plans if plan.model.nodes == variant.nodes]
        start = max(starts, key=lambda plan: plan.throughput).placement if starts else None
        try:
            plan = make_plan(instance, limits, start=start, pool=pool, report=report)
        except InputError:  # proved impossible: this model has no plan, and needs no bound
            if not plans:
                raise
            continue
        except CheckFailed:  # no plan in time, but perhaps one exists, up to the bound of the relaxation
            if not plans:
                raise
            if bound_ticks is not None:
                bounds.append(Fraction(instance.ticks, bound_ticks))
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
