"""Benchmark of the P4SGD paper's figures 2 and 8 to 15, from simulated RTL cycles, as JSON and PNG.

Cycles do not depend on the data, so synthetic words of table II's shapes replace its data sets. A few
mini-batches are simulated, and the time of an epoch is extrapolated. Loss per epoch comes from the golden
model, which the RTL equals bit for bit, on synthetic samples with the same number of features.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ, is_number
from fanin.evaluation.bench import losses, nodes
from fanin.evaluation.bench.baselines import figure_8, figure_13, figure_15
from fanin.evaluation.bench.equations import figure_2
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result
from fanin.evaluation.models.baselines import T_L_NS
from fanin.evaluation.origins.graph import identifier
from fanin.fixed import DEFAULT_PRECISION, MAX_PRECISION
from fanin.glm.facts import Partitioning
from fanin.sim.glm.data import TABLE_II

LOSS_FIGURE = 14
FIGURE_9_RATIOS = {("rcv1", 16): 2.0, ("amazon_fashion", 16): 4.8, ("amazon_fashion", 1024): 1.0}  # section V-C
FIGURE_9_WORKERS = 4
Drawing = tuple[list[Figure], Iterator[Result]]


def draw(
    number: int,
    folder: Path,
    data: Sequence[str] = (),
    precisions: str | None = None,
    rtl_epochs: int | None = None,
) -> Iterator[Result]:
    """Measure a figure, point by point; write its JSON and PNG into ``folder``.

    - ``number``: number of the figure in the paper.
    - ``data``: available data sets, as ``NAME=FILE``.
    - ``precisions``: bits of a feature, separated by commas; None: the default.
    - ``rtl_epochs``: epochs of each curve of figure 14 that sparse nodes train in RTL, too; None: none.

    Raises InputError.
    """
    if precisions and number != LOSS_FIGURE:
        raise InputError(f"--precision: figure {number} has {DEFAULT_PRECISION} bits; only 14 takes others")
    if rtl_epochs is not None and (number != LOSS_FIGURE or not 0 <= rtl_epochs <= losses.EPOCHS):
        raise InputError(f"--rtl: figure {LOSS_FIGURE} takes 0 to {losses.EPOCHS} epochs, others none")
    files: dict[str, Path] = {}
    for entry in data:
        name, _, file = entry.partition("=")
        if not file:
            raise InputError(f"--data {entry}: not NAME=FILE")
        files[name] = Path(file)
    unknown = files.keys() - (losses.RATES.keys() if number == LOSS_FIGURE else ())
    if unknown:
        expected = f"takes {' and '.join(losses.RATES)}" if number == LOSS_FIGURE else "needs no data"
        raise InputError(f"--data {min(unknown)}: figure {number} {expected}")
    paths = outputs(f"figure{number}", folder)
    if number == LOSS_FIGURE:
        figures, points = losses.figure_14(files, _precisions(precisions), rtl_epochs or 0)
    else:
        figures, points = FIGURES[number]()
    yield from points
    write(figures, paths)


def _precisions(text: str | None) -> list[int]:
    """Parse the list of ``--precision``. Raises InputError."""
    if text is None:
        return [DEFAULT_PRECISION]
    texts = text.split(",")
    if not all(is_number(bits) and 1 <= int(bits) <= MAX_PRECISION for bits in texts):
        raise InputError(f"--precision {text}: must be numbers from 1 to {MAX_PRECISION}, with commas between")
    return [int(bits) for bits in dict.fromkeys(texts)]


def _epoch_seconds(name: str, *, workers: int, engines: int, batch: int, data_parallel: bool = False) -> float:
    """Return the time of an epoch on a set of table II, in s."""
    data_set = TABLE_II[name]
    measurement = nodes.measure(
        nodes.node(engines, data_parallel=data_parallel),
        workers=workers,
        columns=data_set.features,
        batch=batch,
        latency_ns=T_L_NS,
        mini_batches=1,
    )
    return -(-data_set.samples // batch) * measurement.mini_batch * nodes.CYCLE_NS * 1e-9


SIMULATION_NOTE = (
    f"RTL cycles of a mini-batch at {CLOCK_MHZ:g} MHz, T_l = {T_L_NS / 1000:g} µs, 4 bits, "
    "extrapolated to an epoch; synthetic data of table II's shapes."
)


def _figure_9() -> Drawing:
    title = f"Model- and data-parallel, {FIGURE_9_WORKERS} workers × 8 engines"
    figure = Figure("figure 9", title, "mini-batch size B", "s per epoch")
    figure.log_y, figure.id = True, "glm.figure_9.epoch"  # the sets differ by a hundred
    figure.note = SIMULATION_NOTE
    data_sets, batches = ("rcv1", "amazon_fashion"), [16 << doubled for doubled in range(7)]
    larger_batches = [FIGURE_9_WORKERS * batch for batch in batches if FIGURE_9_WORKERS * batch not in batches]

    def points() -> Iterator[Result]:
        seconds: dict[tuple[Partitioning, str, int], float] = {}
        for kind in Partitioning:
            data_parallel = kind is Partitioning.DATA_PARALLEL
            for name, batch in itertools.product(data_sets, batches + larger_batches * data_parallel):
                epoch_seconds = _epoch_seconds(
                    name, workers=FIGURE_9_WORKERS, engines=8, batch=batch, data_parallel=data_parallel
                )
                seconds[kind, name, batch] = epoch_seconds
                yield figure.add(f"{name}, {kind.value}", batch, epoch_seconds)
        for name, batch in itertools.product(data_sets, batches):
            yield from _figure_9_ratios(seconds, name, batch)

    return [figure], points()


def _figure_9_ratios(
    seconds: Mapping[tuple[Partitioning, str, int], float], name: str, batch: int
) -> Iterator[Result]:
    """Yield data- over model-parallel time, with B samples in all and with B per data-parallel worker."""
    model_parallel = seconds[Partitioning.MODEL_PARALLEL, name, batch]
    paper = FIGURE_9_RATIOS.get((name, batch))
    for reading, samples in (("", batch), (" a worker", FIGURE_9_WORKERS * batch)):
        ratio = seconds[Partitioning.DATA_PARALLEL, name, samples] / model_parallel
        text = f"figure 9: {name}, B {batch}{reading}: data- over model-parallel"
        figure_id = identifier("glm.figure_9", name, f"b {batch}{reading}", "data over model parallel")
        yield Result(text, ratio, "×", note=f"the paper: {paper:g}" if paper else "", id=figure_id)


def _speedup(
    number: int,
    title: str,
    x_label: str,
    *,
    sets: Sequence[str],
    values: Sequence[int],
    measure: Callable[[str, int], float],
) -> Drawing:
    """Return a figure of speedups relative to the first of ``values``."""
    figure = Figure(f"figure {number}", title, x_label, "speedup", note=SIMULATION_NOTE)

    def points() -> Iterator[Result]:
        base_seconds: dict[str, float] = {}
        for value in values:  # outside, so that nodes of one size are built once
            for name in sets:
                seconds = measure(name, value)
                yield figure.add(name, value, base_seconds.setdefault(name, seconds) / seconds)

    return [figure], points()


def _figure_10() -> Drawing:
    return _speedup(
        10,
        "Mini-batch size, 8 workers × 8 engines",
        "mini-batch size B",
        sets=list(TABLE_II),
        values=(16, 32, 64, 128, 256, 512, 1024),
        measure=lambda name, batch: _epoch_seconds(name, workers=8, engines=8, batch=batch),
    )


def _figure_11() -> Drawing:
    return _speedup(
        11,
        "Scale-up, 1 worker, B = 64",
        "engines",
        sets=("gisette", "real_sim", "rcv1"),
        values=(1, 2, 4, 8),
        measure=lambda name, engines: _epoch_seconds(name, workers=1, engines=engines, batch=64),
    )


def _figure_12() -> Drawing:
    return _speedup(
        12,
        "Scale-out, 8 engines, B = 16",
        "workers",
        sets=list(TABLE_II),
        values=(1, 2, 4, 8),
        measure=lambda name, workers: _epoch_seconds(name, workers=workers, engines=8, batch=16),
    )


FIGURES: dict[int, Callable[[], Drawing]] = {
    2: lambda: figure_2(T_L_NS),
    8: figure_8,
    9: _figure_9,
    10: _figure_10,
    11: _figure_11,
    12: _figure_12,
    13: figure_13,
    15: figure_15,
}
