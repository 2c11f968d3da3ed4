"""Benchmark of CNN training in simulation: arrays of binary32 operators as RTL and in C, plans, networks."""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator

import numpy as np

from fanin.base.cache import fresh_cache
from fanin.evaluation.bench import cluster_networks, cluster_plans
from fanin.evaluation.bench.result import Result
from fanin.sim.cnn.array_bench import ArrayBench
from fanin.sim.cosim.arrays import Arith

LANES = {Arith.RTL: (8, 64, 512), Arith.C: (8, 64, 512)}
CYCLES = 1024  # cycles with different operands, which a run repeats
MIN_SECONDS = 2.0  # minimum processor time of a timed run
MIN_SPEEDUP = 5.0  # ratio of the rates of simulation with operators in C and in RTL


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured: minutes of builds for each network, and some of plans."""
    if args.part in (None, "arrays"):
        yield from _arrays()
    if args.part in (None, "plans"):
        yield from cluster_plans.measure()
    if args.part in (None, "networks"):
        yield from cluster_networks.measure(args.network)


def _arrays() -> Iterator[Result]:
    """Yield build time and simulation rate of arrays of operators, and the ratio of C to RTL."""
    rates: dict[tuple[Arith, int], float] = {}
    with fresh_cache():  # no cached result may shorten the timed work
        ArrayBench(lanes=1, arith=Arith.C)  # Verilator's library, which all builds share
        for arith, sizes in LANES.items():
            for lanes in sizes:
                name = f"{lanes} lanes, {arith}"
                start = _processor_time()
                bench = ArrayBench(lanes=lanes, arith=arith)
                yield Result(f"{name}: build", _processor_time() - start, "s")
                rate = rates[arith, lanes] = _cycles_a_second(bench)
                yield Result(f"{name}: simulation", rate, "cycles/s")
                yield Result(f"{name}: lanes", rate * lanes / 1e6, "M lane-cycles/s")
    max_lanes = max(set(LANES[Arith.RTL]) & set(LANES[Arith.C]))
    speedup = rates[Arith.C, max_lanes] / rates[Arith.RTL, max_lanes]
    yield Result(f"{max_lanes} lanes: C over RTL", speedup, "times", MIN_SPEEDUP, at_least=True)


def _processor_time() -> float:
    """Return the processor time of this process and its ended children, in s."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _cycles_a_second(bench: ArrayBench) -> float:
    """Return simulated cycles per s of processor time, in a run of sufficient length with normal operands."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, CYCLES * bench.lanes)).astype(np.float32).view(np.uint32)
    run, times = bench.run(a, b), 1
    while run.seconds < MIN_SECONDS:
        times *= 8
        run = bench.run(a, b, repetitions=times)
    return run.cycles / run.seconds
