"""The planner: how long it takes, how good its plans are, and how much of that is proved."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from fanin.cli.bench.result import Result
from fanin.cli.planning import SECONDS, SWEEP_SECONDS
from fanin.planner.cluster import load_cluster
from fanin.planner.limits import Limits
from fanin.planner.load import load_model
from fanin.planner.search import worker_pool
from fanin.planner.sweep import sweep

WORKERS = 2
COUNTS, FACTORS = range(3, 10), (1, 2, 4)
MAX_SWEEP, MAX_MOBILENET, MAX_GAP = 300.0, 120.0, 2.0
PAPER = "the paper: 24 minutes, no bound; it measured 395"


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, in three minutes."""
    begin = time.perf_counter()
    with worker_pool(WORKERS) as pool:
        limits = Limits(seconds=SECONDS, workers=WORKERS)
        cluster = load_cluster("arria10x6")
        [(_, _, plan)] = sweep(load_model("mobilenet_v2"), cluster, [6], [1], limits, pool=pool)
    yield Result("MobileNetV2 on six Arria 10: time", time.perf_counter() - begin, "s", MAX_MOBILENET)
    yield Result("throughput", float(plan.throughput), "frames/s", note=PAPER)
    yield Result("gap to the proved bound", 100 * plan.gap, "%", MAX_GAP)
    yield Result("with updates, batch 256", plan.throughput_with_update, "frames/s", note="the paper: 359")
    begin = time.perf_counter()
    with worker_pool(WORKERS) as pool:
        limits = Limits(seconds=SWEEP_SECONDS, workers=WORKERS)
        cluster = load_cluster("arria10x9")
        plans = list(sweep(load_model("example_cnn"), cluster, COUNTS, FACTORS, limits, pool=pool))
    yield Result(
        "example CNN, 3…9 Arria 10, no MP, MP2, MP4: time", time.perf_counter() - begin, "s", MAX_SWEEP
    )
    rates = {(n, k): float(p.throughput) for n, k, p in plans}
    falls = sum(rates[n, k] < rates[n - 1, k] for n, k in rates if (n - 1, k) in rates)
    yield Result("plans in which a device more costs throughput", falls, "plans", 0)
    yield Result("plans that are proved optimal", sum(p.optimal for *_, p in plans), "of 21")
    yield Result("largest gap of the others", 100 * max(p.gap for *_, p in plans), "%")
    for count in COUNTS:
        yield Result(f"throughput on {count}, no MP", rates[count, 1], "frames/s")
