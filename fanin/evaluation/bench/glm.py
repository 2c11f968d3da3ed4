"""Benchmark of GLM training: cycles, latency, utilisation and scaling, compared with P4SGD's public RTL."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from fanin.base.cache import fresh_cache
from fanin.base.errors import InputError
from fanin.base.tools import python_module
from fanin.evaluation.bench import figures, memory, nodes, sparse
from fanin.evaluation.bench.nodes import NodeMeasurement, PathLatencies
from fanin.evaluation.bench.result import Result

# Engines, D, B: the cycles of a mini-batch in P4SGD's public RTL, simulated at 4 bits and T_l = 0.
P4SGD_CYCLES = {
    (8, 1024, 64): 152,
    (8, 1024, 16): 92,
    (8, 4096, 64): 344,
    (8, 16384, 64): 1112,
    (1, 1024, 64): 598,
    (1, 4096, 64): 2134,
}
P4SGD_WORD_TO_AGG = 41
P4SGD_RESULT_TO_GRADIENT = 24
MAX_EXPOSED = 44  # cycles of a mini-batch beyond M·C·s + T_l + s


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured, or a selected figure of the paper or part."""
    needs_figure = {"data": bool(args.data), "precision": bool(args.precision), "rtl": args.rtl is not None}
    if any(needs_figure.values()) and not args.figure:
        raise InputError(f"--{max(needs_figure, key=needs_figure.__getitem__)}: needs --figure")
    if args.part and args.figure:
        raise InputError("--part and --figure cannot be given together")
    if args.part == "memory":
        yield from memory.measure(args.output)
        return
    if args.part == "sparse":
        yield from sparse.measure()
        return
    if args.figure:
        yield from figures.draw(args.figure, args.output, args.data, args.precision, args.rtl)
        return
    with fresh_cache():  # no cached result may shorten the timed work
        yield from _emission()
        yield from _mini_batches()
        yield from _scale_up()
        yield from _scale_out()
        yield from _demo()


def _timed(name: str, limit: float, action: Callable[[], object]) -> Result:
    """Measure the time of ``action``, with its CPU time in the note for busy machines."""
    start, cpu_start = time.monotonic(), _cpu_seconds()
    action()
    seconds, cpu_seconds = time.monotonic() - start, _cpu_seconds() - cpu_start
    return Result(name, seconds, "s", limit, note=f"{cpu_seconds:.0f} s of CPU")


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its ended children, in s."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _fanin(*arguments: str) -> None:
    command = python_module("fanin", *arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _emission() -> Iterator[Result]:
    command = ("verilog", "glm-node", "--preset", "u280", "-o", "-")
    yield _timed("u280 node: Verilog", 60, lambda: _fanin(*command))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    yield Result("u280 node: Verilog, memory", memory, "GiB", 4)


def _mini_batches() -> Iterator[Result]:
    yield _timed("u280 node: Verilated", 90, lambda: nodes.build(nodes.node(8), 1))
    for (engines, columns, batch), p4sgd_cycles in P4SGD_CYCLES.items():
        measurement = nodes.measure(nodes.node(engines), columns=columns, batch=batch)
        yield _mini_batch(measurement, f"{engines} engines, D={columns:,}, B={batch}", p4sgd_cycles)
        if (engines, columns, batch) == (8, 4096, 64):
            assert measurement.paths is not None, "model-parallel"
            yield from _latencies(measurement.paths)
        if (engines, columns, batch) == (8, 16384, 64):
            yield from _rate()
            yield from _utilisation()


def _mini_batch(measurement: NodeMeasurement, name: str, p4sgd_cycles: int) -> Result:
    limit = measurement.ideal + measurement.latency + MAX_EXPOSED + measurement.shape.precision
    note = f"P4SGD {p4sgd_cycles:,} at T_l = 0; ideal {measurement.ideal:,}; T_l here {measurement.latency}"
    return Result(f"mini-batch, {name}", measurement.mini_batch, "cycles", limit, note=note)


def _latencies(paths: PathLatencies) -> Iterator[Result]:
    for name, value, limit, p4sgd_cycles in (
        ("last word in → AGG on the wire", paths.word_to_agg, 24, P4SGD_WORD_TO_AGG),
        ("RESULT in → first gradient", paths.result_to_gradient, 16, P4SGD_RESULT_TO_GRADIENT),
        ("transport: PA accepted → frame out", paths.pa_to_agg, 6, None),
        ("transport: RESULT in → FA out", paths.result_to_fa, 6, None),
    ):
        yield Result(name, value, "cycles", limit, note=f"P4SGD {p4sgd_cycles}" if p4sgd_cycles else "")


def _rate() -> Iterator[Result]:
    """Yield the transport's rate with C·s = 1, a micro-batch per cycle."""
    measurement = nodes.measure(nodes.node(8), columns=512, batch=512, precision=1)
    assert measurement.paths is not None, "model-parallel"
    yield Result("transport: PA to PA at C·s = 1", measurement.paths.pa_to_pa, "cycles", 1)


def _utilisation() -> Iterator[Result]:
    measurement = nodes.measure(nodes.node(8), columns=8192, batch=1024)
    words = measurement.shape.words_per_micro_batch
    name = f"utilisation, B=1024, C·s={words}, T_l={measurement.latency}"
    yield Result(name, measurement.utilisation, "%", 99, at_least=True)
    yield Result("u280 node: simulated", measurement.cycles_per_second, "cycles/s", 40_000, at_least=True)


def _scale_up() -> Iterator[Result]:
    one_engine, eight_engines = (
        nodes.measure(nodes.node(engines), columns=262_144, batch=64, latency_ns=figures.T_L_NS, mini_batches=1)
        for engines in (1, 8)
    )
    speedup, note = _speedup(one_engine, eight_engines)
    yield Result("1 → 8 engines, D=262,144, B=64", speedup, "×", 7.8, at_least=True, note=note)


def _speedup(base: NodeMeasurement, scaled: NodeMeasurement) -> tuple[float, str]:
    """Return the speed-up of a mini-batch, and a note with the cycles of both measurements."""
    cycles = f"{base.mini_batch:,} and {scaled.mini_batch:,} cycles a mini-batch"
    return base.mini_batch / scaled.mini_batch, f"{cycles}, T_l = {scaled.latency} cycles"


def _scale_out() -> Iterator[Result]:
    one_worker = nodes.measure(
        nodes.node(8), columns=1 << 20, batch=64, latency_ns=figures.T_L_NS, mini_batches=1
    )
    yield _timed("8 u280 nodes: Verilated", 120, lambda: nodes.build(nodes.node(8), 8))
    eight_workers = nodes.measure(
        nodes.node(8), workers=8, columns=1 << 20, batch=64, latency_ns=figures.T_L_NS, mini_batches=1
    )
    speedup, note = _speedup(one_worker, eight_workers)
    yield Result("1 → 8 workers of 8 engines, D=1,048,576, B=64", speedup, "×", 7.65, at_least=True, note=note)
    yield Result("8 u280 nodes: simulated", eight_workers.cycles_per_second, "cycles/s")


def _demo() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="fanin-demo-") as folder:
        command = ("train", "breast_cancer", "-o", f"{folder}/run")
        yield _timed("demo, nothing built yet", 300, lambda: _fanin(*command))
        yield _timed("demo, again", 60, lambda: _fanin(*command))
