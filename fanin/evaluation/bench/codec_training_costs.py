"""Benchmark of the motivation for codecs in hardware: INCEPTIONN's figures 3, 4, 5, 7, and 12's traffic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fanin.evaluation.bench.codec_training_bench import HDC, TEMPLATES, Bench
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.models import exchange_cost
from fanin.evaluation.origins.graph import identifier
from fanin.sim.codec import host_compression
from fanin.sim.codec.effects import TRUNCATIONS, leg_traffic, run, spread
from fanin.sim.codec.exchanges import WorkerAggregator
from fanin.sim.codec.gradients import STAGES, gradients, histogram
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import Truncation

TRAFFIC_EPOCHS = 5
SMALL_GRADIENT = 2.0**-10


def _figure_3(bench: Bench) -> Iterator[Result]:
    """Yield figure 3: the share of communication in a worker-aggregator system's time."""
    rows = []
    for comparison in exchange_cost.communication_shares():
        note = f"the paper: {number(comparison.published)}" + (", fitted" if comparison.fitted else "")
        name, figure_id = f"figure 3: {comparison.name}, communication", f"inceptionn.figure_3.{comparison.id}"
        yield Result(name, comparison.model, "% of time", note=note, id=figure_id)
        rows.append((comparison.name, f"{comparison.model:.1f} %", f"{comparison.published:.1f} %"))
    bench.table("Figure 3: communication's share of the training time", ("", "model", "the paper"), rows)


@dataclass(frozen=True)
class TruncationTarget:
    """Data whose low bits are dropped in a training.

    - ``gradients``: gradients, from the workers to the aggregator.
    - ``weights``: weights, from the aggregator to the workers.
    - ``master``: the aggregator keeps an exact copy of the weights (``Training.master``).
    """

    gradients: bool
    weights: bool
    master: bool = False

    def run(self, training: Training, dropped: int) -> float:
        """Train with ``dropped`` low bits removed; return the last epoch's accuracy in %."""
        codec = Truncation(dropped)
        training = replace(training, weights=codec if self.weights else None, master=self.master)
        return run(training, WorkerAggregator(codec if self.gradients else None)).last


TRUNCATION_TARGETS = {
    "gradients": TruncationTarget(True, False),
    "weights": TruncationTarget(False, True),
    "both": TruncationTarget(True, True),
    "weights, whole copy kept": TruncationTarget(False, True, master=True),
}


def _figure_4(bench: Bench) -> Iterator[Result]:
    """Yield figure 4: truncated gradients, weights or both, in a worker-aggregator system."""
    paths = outputs("inceptionn-figure4", bench.folder)
    trainings = {name: training for name, training in bench.trainings.items() if name in (HDC, TEMPLATES)}
    figures, rows = [], []
    for network, training in trainings.items():
        figure = Figure("figure 4", network, "LSBs truncated", "accuracy, %", log_x=False)
        figures.append(figure)
        for data, target in TRUNCATION_TARGETS.items():
            spreads = []
            for dropped in TRUNCATIONS:
                values = []
                for seed in range(bench.seeds):
                    values.append(target.run(replace(training, seed=seed), dropped))
                    bench.count_training()
                spreads.append(spread(values))
                result = figure.add(data, dropped, spreads[-1].mean)
                yield replace(result, name=f"figure 4: {network}, {data}, {dropped} LSBs")
            rows.append((network, data, *spreads))
    columns = ("network", "truncated", *(f"{dropped} LSBs" for dropped in TRUNCATIONS))
    bench.table("Figure 4: accuracy in per cent, weights and gradients truncated", columns, rows)
    if figures:
        write(figures, paths)


def _figure_5(bench: Bench) -> Iterator[Result]:
    """Yield figure 5: gradient values at an early, a middle and the last iteration."""
    paths = outputs("inceptionn-figure5", bench.folder)
    figures, rows = [], []
    for network, training in bench.trainings.items():
        figure = Figure("figure 5", network, "gradient", "% of the values", log_x=False, log_y=True)
        figures.append(figure)
        for stage, values in gradients(training=training).items():
            figure.series[stage] = histogram(values)
            small = 100 * float(np.mean(np.abs(values) <= SMALL_GRADIENT))
            largest, deviation = float(np.abs(values).max()), float(values.std())
            note = f"standard deviation {number(deviation)}, largest {number(largest)}; the paper: all below 1"
            yield Result(f"figure 5: {network}, {stage}: at most 2^-10", small, "% of values", note=note)
            within_1 = 100 * float(np.mean(np.abs(values) < 1))
            name = f"figure 5: {network}, {stage}: between -1 and 1"
            figure_id = identifier("inceptionn.figure_5", network, stage, "within 1")
            yield Result(name, within_1, "% of values", id=figure_id)
            rows.append((network, stage, f"{deviation:.2g}", f"{largest:.2g}", f"{small:.1f} %"))
        bench.count_training()
    columns = ("network", "gradient", "standard deviation", "largest", "at most 2^-10")
    bench.table("Figure 5: gradient values", columns, rows)
    if figures:
        write(figures, paths)


def _figure_7(bench: Bench) -> Iterator[Result]:
    """Yield figure 7: time of compression on the host, for the digit classifier's gradients."""
    if HDC not in bench.trainings:
        return
    benchmarks = [row for row in exchange_cost.BENCHMARKS if row.name in ("AlexNet", "HDC")]
    rows = []
    gradients_by_stage = gradients(training=bench.trainings[HDC])
    for name, make in host_compression.CODECS.items():
        try:
            codec = make()
        except ImportError as error:
            text = f"{name} is left out: {error}: pip install 'fanin[compressors]'"
            print(f"fanin: warning: {text}", file=sys.stderr)
            continue
        for stage in STAGES:
            cost = host_compression.cost(codec, gradients_by_stage[stage])
            times = [
                exchange_cost.with_host_codec(row, cost.ratio, cost.compress, cost.decompress)
                for row in benchmarks
            ]
            speeds = f"{cost.compress / 1e9:.2f} and {cost.decompress / 1e9:.2f} GB/s"
            for benchmark, factor in zip(benchmarks, times, strict=True):
                paper = "slightly below 1" if "truncated" in name else "2 to 4"
                note = f"{cost.ratio:.3g}× smaller, {speeds}; the paper: {paper}"
                text = f"figure 7: {name}, {stage}: {benchmark.name}"
                figure_id = identifier("inceptionn.figure_7", name, stage, benchmark.name)
                yield Result(text, factor, "× the time", note=note, id=figure_id)
            rows.append((name, stage, f"{cost.ratio:.3g}", speeds, *(f"{factor:.2f}" for factor in times)))
    columns = (
        "",
        "gradient",
        "ratio",
        "compress and decompress",
        *(f"{row.name}'s time" for row in benchmarks),
    )
    bench.table("Figure 7: training time with compression on the host, over that without", columns, rows)


def _figure_12(bench: Bench) -> Iterator[Result]:
    """Yield the traffic of each leg of an exchange."""
    if HDC not in bench.trainings:
        return
    rows = []
    for exchange, leg, size, ratio in leg_traffic(replace(bench.trainings[HDC], epochs=TRAFFIC_EPOCHS)):
        yield Result(f"{exchange}: {leg}", size, "MB/iteration", note=f"{ratio:.2f}× smaller")
        rows.append((exchange, leg, f"{size:.2f}", f"{ratio:.2f}"))
    bench.table("Bytes of each leg", ("", "leg", "MB an iteration", "ratio"), rows)


PARTS: dict[int, Callable[[Bench], Iterator[Result]]] = {
    3: _figure_3,
    4: _figure_4,
    5: _figure_5,
    7: _figure_7,
    12: _figure_12,
}
