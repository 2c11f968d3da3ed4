"""Benchmark of the planner: time, quality of plans, and proved bounds."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from fanin.cnn.plan.execute import run_search
from fanin.cnn.plan.options import SECONDS, SWEEP_SECONDS
from fanin.evaluation.bench import plan_layers
from fanin.evaluation.bench.result import Result
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.plan import Plan
from fanin.planner.plan.sweep import Report, sweep
from fanin.planner.search.limits import Limits

WORKERS = 2  # searches in parallel
COUNTS, FACTORS = range(3, 10), (1, 2, 4)  # numbers of devices and degrees of model parallelism of the sweep
MAX_SWEEP_SECONDS, MAX_MOBILENET_SECONDS, MAX_GAP_PERCENT = 300.0, 120.0, 2.0
PAPER = "the paper: 24 minutes, no bound; it measured 395"


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, in three minutes."""
    if args.part in (None, "layers"):
        yield from plan_layers.measure()
    if args.part in (None, "searches"):
        yield from _searches()


def _searches() -> Iterator[Result]:
    """Yield time, throughput and gap of MobileNetV2's plan, then of the example CNN's 21 plans."""
    start = time.perf_counter()
    [(_, _, plan)] = plans_of("mobilenet_v2", "arria10x6", [6], [1], SECONDS)
    yield Result("MobileNetV2 on six Arria 10: time", time.perf_counter() - start, "s", MAX_MOBILENET_SECONDS)
    yield Result("throughput", float(plan.throughput), "frames/s", note=PAPER)
    yield Result("gap to the proved bound", 100 * plan.gap, "%", MAX_GAP_PERCENT)
    yield Result("with updates, batch 256", plan.throughput_with_update, "frames/s", note="the paper: 359")
    start = time.perf_counter()
    plans = plans_of("example_cnn", "arria10x9", COUNTS, FACTORS, SWEEP_SECONDS)
    yield Result(
        "example CNN, 3…9 Arria 10, no MP, MP2, MP4: time", time.perf_counter() - start, "s", MAX_SWEEP_SECONDS
    )
    rates = {(n, k): float(p.throughput) for n, k, p in plans}
    falls = sum(rates[n, k] < rates[n - 1, k] for n, k in rates if (n - 1, k) in rates)
    yield Result("plans in which a device more costs throughput", falls, "plans", 0)
    yield Result("plans that are proved optimal", sum(p.optimal for *_, p in plans), "of 21")
    yield Result("largest gap of the others", 100 * max(p.gap for *_, p in plans), "%")
    for count in COUNTS:
        yield Result(f"throughput on {count}, no MP", rates[count, 1], "frames/s")


def plans_of(
    model: str, cluster: str, counts: Sequence[int], factors: Sequence[int], seconds: float
) -> list[tuple[int, int, Plan]]:
    """Return the plans of ``fanin plan --save published``, with numbers of devices and parts.

    The papers' layers save whole maps, so the figures beside theirs are of such plans.
    """
    limits = Limits(seconds=seconds, workers=WORKERS)
    published = load_model(model).as_published()

    def work(pool: ProcessPoolExecutor | None, report: Report) -> Iterator[tuple[int, int, Plan]]:
        return sweep(published, load_cluster(cluster), counts, factors, limits, pool=pool, report=report)

    return list(run_search(work, WORKERS, lambda *values: None))
