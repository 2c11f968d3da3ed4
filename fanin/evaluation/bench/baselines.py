"""Benchmark of P4SGD and its baselines CPUSync, GPUSync and SwitchML: figures 8, 13, 15 and table IV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np

from fanin.evaluation.bench import losses
from fanin.evaluation.bench.allreduce import Point
from fanin.evaluation.bench.figure import Figure
from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.models import baselines
from fanin.evaluation.models.baselines import CPU, GPU, P4SGD, SWITCHML, WORKERS, Float64
from fanin.evaluation.origins.graph import identifier
from fanin.fixed import DEFAULT_PRECISION
from fanin.glm.facts import MICRO_BATCH
from fanin.p4.aggregation import ProgramConfig
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.allreduce import allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Protocol

#: figures without points, and an iterator that measures the points and adds them
Drawing = tuple[list[Figure], Iterator[Result]]
OPERATIONS = 1000  # operations of SwitchML's hosts, one at a time
MINI_BATCHES = 500  # mini-batches of P4SGD's RTL, an AllReduce each
STATISTICS = {"1st percentile": 1, "mean": None, "99th percentile": 99}
WORKER_COUNTS = (1, 2, 4, 8)  # numbers of workers in figure 13
BATCHES = (16, 1024)  # mini-batch sizes in figure 13


def figure_8() -> Drawing:
    """Return figure 8: single AllReduces of 8 values by 8 workers."""
    names = [P4SGD, GPU, CPU, SWITCHML]
    figure = Figure("figure 8", f"AllReduce of {MICRO_BATCH} values, {WORKERS} workers", "system", "ns")
    figure.log_x, figure.log_y, figure.x_names = False, True, names
    figure.note = "P4SGD: RTL. GPUSync, CPUSync: one model, fitted to ten times the paper's P4SGD."

    def points() -> Iterator[Result]:
        hosts = baselines.host_allreduce_ns()
        latencies = {P4SGD: _p4sgd_latencies(), GPU: hosts, CPU: hosts, SWITCHML: switchml_latencies(WORKERS)}
        for position, name in enumerate(names):
            for series, percentile in STATISTICS.items():
                samples_ns = latencies[name]
                value = float(
                    samples_ns.mean() if percentile is None else np.percentile(samples_ns, percentile)
                )
                figure.add(series, position, value)
                yield Result(f"figure 8: {name}, {series}", value, "ns")

    return [figure], points()


def _p4sgd_latencies() -> Float64:
    point = Point(Protocol.P4SGD, WORKERS)
    run = point.run(NetworkConfig(), batch=MICRO_BATCH, mini_batches=MINI_BATCHES, precision=DEFAULT_PRECISION)
    return point.latencies(run)


@cache
def switchml_latencies(workers: int) -> Float64:
    """Return latencies in ns by operation and host: golden workers on hosts' links, the emitted program."""
    program = ProgramConfig(protocol=Protocol.SWITCHML, workers=workers, slots=2)
    switch = make_switch(workers, kind=SwitchKind.EMBEDDED, config=program)
    rows = np.ones((workers, OPERATIONS * program.values), dtype=np.int32)
    run = allreduce(rows, switch=switch, program=program, network=baselines.switchml_network())
    return np.array(run.latencies_ns)


def figure_13() -> Drawing:
    """Return figure 13: epoch times over workers."""
    figures = [
        Figure(f"figure 13: {name}", name, "workers", "s per epoch", log_y=True, id=f"glm.figure_13.{name}")
        for name in ("rcv1", "amazon_fashion")
    ]
    figures[-1].note = "P4SGD: the model of time that is held to RTL. The others: models fitted to table IV."

    def points() -> Iterator[Result]:
        switchml_hosts = baselines.switchml(lambda workers: 1e-9 * float(switchml_latencies(workers).mean()))
        hosts = baselines.baselines() | {SWITCHML: switchml_hosts}
        ratios = []
        for figure, batch, workers in itertools.product(figures, BATCHES, WORKER_COUNTS):
            case = {"workers": workers, "batch": batch}
            seconds = {P4SGD: baselines.p4sgd_epoch(figure.title, **case)}
            seconds |= {name: model.epoch(figure.title, **case) for name, model in hosts.items()}
            for name, epoch_seconds in seconds.items():
                yield figure.add(f"{name}, B={batch}", workers, epoch_seconds)
            ratios.append(seconds[GPU] / seconds[P4SGD])
        name, figure_id = f"figure 13: {GPU} over {P4SGD}, most", "glm.figure_13.gpusync_over_p4sgd.most"
        yield Result(name, max(ratios), "×", note="the paper: up to 9.3", id=figure_id)

    return figures, points()


def figure_15() -> Drawing:
    """Return figure 15: loss over time, by epoch; table IV follows its results."""
    figures = [
        Figure(
            f"figure 15: {name}",
            f"{name}, γ = {rates[-1]:g}",
            "seconds",
            "logistic loss",
            log_x=False,
            id=f"glm.figure_15.{name}",
        )
        for name, rates in losses.RATES.items()
    ]

    def points() -> Iterator[Result]:
        notes = []
        for figure, (name, rates) in zip(figures, losses.RATES.items(), strict=True):
            samples = losses.read_samples(name, None)
            notes.append(samples.source)
            curves = {
                P4SGD: list(losses.fixed_losses(samples, rates[-1], DEFAULT_PRECISION)),
                GPU: list(losses.float64_losses(samples, rates[-1])),
            }
            for system in (P4SGD, GPU, CPU):
                epoch = _epoch(system, name, len(samples.labels))
                for epochs, loss in enumerate(curves.get(system, curves[GPU]), start=1):
                    yield figure.add(system, epochs * epoch, loss)
        figures[-1].note = f"B = {baselines.BATCH}, {WORKERS} workers; {'; '.join(notes)}"
        yield from _table_4()

    return figures, points()


def _epoch(system: str, name: str, samples: int) -> float:
    if system == P4SGD:
        return baselines.p4sgd_epoch(name, samples=samples)
    return baselines.baselines()[system].epoch(name, samples=samples)


def _table_4() -> Iterator[Result]:
    """Yield GPUSync's predicted time and energy on avazu, and the fitted parameters of the models."""
    gpu, name = baselines.baselines()[GPU], "avazu"
    seconds, watts = gpu.run(name), baselines.WATTS[GPU]
    note = f"the paper: {number(baselines.SECONDS[GPU][name])}"
    id_prefix = identifier("glm.table_4", GPU, name)
    yield Result(f"table 4: {GPU}, {name}: time", seconds, "s", note=note, id=f"{id_prefix}.seconds")
    note = f"the paper: {number(baselines.JOULES[GPU, name])}; {watts:g} W are the paper's"
    yield Result(f"table 4: {GPU}, {name}: energy", seconds * watts, "J", note=note, id=f"{id_prefix}.joules")
    ratio = seconds / baselines.SECONDS[P4SGD][name]
    yield Result(f"table 4: {GPU} over {P4SGD}, {name}", ratio, "×", note="P4SGD's seconds are the paper's")
    for system, model in baselines.baselines().items():
        yield Result(f"table 4: {system}: read", model.rate * 1e-9, "GB/s", note="fitted")
        yield Result(f"table 4: {system}: beside reading and AllReduce", model.fixed * 1e6, "µs", note="fitted")
