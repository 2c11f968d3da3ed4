"""P4SGD's figures 8, 13 and 15 and table IV: P4SGD itself beside CPUSync, GPUSync and SwitchML on hosts."""

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

Drawing = tuple[list[Figure], Iterator[Result]]
OPERATIONS = 1000  # operations of SwitchML's hosts, one at a time
MINI_BATCHES = 500  # of P4SGD's RTL, an AllReduce each
STATISTICS = {"1st percentile": 1, "mean": None, "99th percentile": 99}
SCALED = (1, 2, 4, 8)  # workers of figure 13
BATCHES = (16, 1024)


def figure_8() -> Drawing:
    """Return figure 8: single AllReduces of 8 values by 8 workers."""
    names = [P4SGD, GPU, CPU, SWITCHML]
    figure = Figure("figure 8", f"AllReduce of {MICRO_BATCH} values, {WORKERS} workers", "system", "ns")
    figure.log_x, figure.log_y, figure.x_names = False, True, names
    figure.note = "P4SGD: RTL. GPUSync, CPUSync: one model, fitted to ten times the paper's P4SGD."

    def points() -> Iterator[Result]:
        hosts = baselines.host_allreduce_ns()
        latencies = {P4SGD: _p4sgd(), GPU: hosts, CPU: hosts, SWITCHML: switchml(WORKERS)}
        for place, name in enumerate(names):
            for series, percent in STATISTICS.items():
                found = latencies[name]
                value = float(found.mean() if percent is None else np.percentile(found, percent))
                figure.add(series, place, value)
                yield Result(f"figure 8: {name}, {series}", value, "ns")

    return [figure], points()


def _p4sgd() -> Float64:
    point = Point(Protocol.P4SGD, WORKERS)
    run = point.run(NetworkConfig(), batch=MICRO_BATCH, mini_batches=MINI_BATCHES, precision=DEFAULT_PRECISION)
    return point.latencies(run)


@cache
def switchml(workers: int) -> Float64:
    """Return latencies in ns by operation and host: golden workers on hosts' links, the emitted program."""
    program = ProgramConfig(protocol=Protocol.SWITCHML, workers=workers, slots=2)
    switch = make_switch(workers, kind=SwitchKind.EMBEDDED, config=program)
    rows = np.ones((workers, OPERATIONS * program.values), dtype=np.int32)
    found = allreduce(rows, switch=switch, program=program, network=baselines.switchml_network())
    return np.array(found.latencies_ns)


def figure_13() -> Drawing:
    """Return figure 13: epoch times over workers."""
    figures = [
        Figure(f"figure 13: {name}", name, "workers", "s per epoch", log_y=True, id=f"glm.figure_13.{name}")
        for name in ("rcv1", "amazon_fashion")
    ]
    figures[-1].note = "P4SGD: the model of time that is held to RTL. The others: models fitted to table IV."

    def points() -> Iterator[Result]:
        in_switch = baselines.switchml(lambda workers: 1e-9 * float(switchml(workers).mean()))
        hosts = baselines.baselines() | {SWITCHML: in_switch}
        slower = []
        for figure, batch, workers in itertools.product(figures, BATCHES, SCALED):
            case = {"workers": workers, "batch": batch}
            seconds = {P4SGD: baselines.p4sgd_epoch(figure.title, **case)}
            seconds |= {name: model.epoch(figure.title, **case) for name, model in hosts.items()}
            for name, took in seconds.items():
                yield figure.add(f"{name}, B={batch}", workers, took)
            slower.append(seconds[GPU] / seconds[P4SGD])
        name, short = f"figure 13: {GPU} over {P4SGD}, most", "glm.figure_13.gpusync_over_p4sgd.most"
        yield Result(name, max(slower), "×", note="the paper: up to 9.3", id=short)

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
                for passed, loss in enumerate(curves.get(system, curves[GPU]), start=1):
                    yield figure.add(system, passed * epoch, loss)
        figures[-1].note = f"B = {baselines.BATCH}, {WORKERS} workers; {'; '.join(notes)}"
        yield from _table_4()

    return figures, points()


def _epoch(system: str, name: str, samples: int) -> float:
    if system == P4SGD:
        return baselines.p4sgd_epoch(name, samples=samples)
    return baselines.baselines()[system].epoch(name, samples=samples)


def _table_4() -> Iterator[Result]:
    """Seconds and joules of GPUSync on avazu, which nothing is fitted to, and the models' parts."""
    gpu, name = baselines.baselines()[GPU], "avazu"
    seconds, watts = gpu.run(name), baselines.WATTS[GPU]
    note = f"the paper: {number(baselines.SECONDS[GPU][name])}"
    place = identifier("glm.table_4", GPU, name)
    yield Result(f"table 4: {GPU}, {name}: time", seconds, "s", note=note, id=f"{place}.seconds")
    note = f"the paper: {number(baselines.JOULES[GPU, name])}; {watts:g} W are the paper's"
    yield Result(f"table 4: {GPU}, {name}: energy", seconds * watts, "J", note=note, id=f"{place}.joules")
    over = seconds / baselines.SECONDS[P4SGD][name]
    yield Result(f"table 4: {GPU} over {P4SGD}, {name}", over, "×", note="P4SGD's seconds are the paper's")
    for system, model in baselines.baselines().items():
        yield Result(f"table 4: {system}: read", model.rate * 1e-9, "GB/s", note="fitted")
        yield Result(f"table 4: {system}: beside reading and AllReduce", model.fixed * 1e6, "µs", note="fitted")
