"""The P4SGD paper's figures 9 to 12 and 14, from simulated RTL cycles: JSON and PNG.

Cycles do not depend on the data, so synthetic words of table II's shapes stand for its data sets; a few
mini-batches are simulated, and an epoch is as many of them as the set has. Loss per epoch is the golden
model's, which the RTL equals bit for bit, on synthetic samples of the same number of features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fanin import fixed
from fanin.cli.bench import nodes
from fanin.cli.bench.figure import Figure, outputs, write
from fanin.cli.bench.result import Result
from fanin.clock import CLOCK_MHZ
from fanin.errors import InputError
from fanin.fixed import DEFAULT_PRECISION, Loss
from fanin.glm import PRESETS, TrainShape
from fanin.golden.glm import metrics
from fanin.golden.glm.float64 import train_float64
from fanin.golden.glm.train import train as train_golden
from fanin.sim.glm.data import TABLE_II, Dataset, prepare, read, synthetic

T_L_NS = 1200.0  # P4SGD, section V-B
WORDS_AT_MOST = 1 << 28  # bytes of features: the samples that a measurement may take of a wide set
LOSS_FIGURE = 14
LOSS_RATES = {"rcv1": (1.0, 4.0), "avazu": (1.0, 4.0)}
LOSS_EPOCHS = 10
FLOAT64 = "float64"  # equals fixed point to the eye


def draw(number: int, folder: Path, data: Sequence[str] = ()) -> Iterator[Result]:
    """Measure a figure, point by point; write its JSON and PNG into ``folder``.

    ``data``: ``NAME=FILE``, data sets at hand. Raises InputError.
    """
    files: dict[str, Path] = {}
    for entry in data:
        name, _, file = entry.partition("=")
        if not file:
            raise InputError(f"--data {entry}: not NAME=FILE")
        files[name] = Path(file)
    strange = files.keys() - (LOSS_RATES.keys() if number == LOSS_FIGURE else ())
    if strange:
        taken = f"takes {' and '.join(LOSS_RATES)}" if number == LOSS_FIGURE else "needs no data"
        raise InputError(f"--data {min(strange)}: figure {number} {taken}")
    paths = outputs(f"figure{number}", folder)
    figure, points = _figure_14(files) if number == LOSS_FIGURE else FIGURES[number]()
    yield from points
    write([figure], paths)


def _epoch_seconds(
    name: str, *, workers: int, engines: int, batch: int, data_parallel: bool = False
) -> float | None:
    """Seconds of an epoch on a set of table II; None when its mini-batches are too large to simulate here."""
    set_ = TABLE_II[name]
    mini_batches = 2
    if mini_batches * batch * set_.features > WORDS_AT_MOST:
        return None
    measured = nodes.measure(
        nodes.node(engines, data_parallel=data_parallel),
        workers=workers,
        columns=set_.features,
        batch=batch,
        latency_ns=T_L_NS,
        mini_batches=mini_batches,
    )
    return -(-set_.samples // batch) * measured.mini_batch * nodes.CYCLE_NS * 1e-9


SIMULATED = (
    f"RTL cycles of two mini-batches at {CLOCK_MHZ:g} MHz, T_l = {T_L_NS / 1000:g} µs, 4 bits, "
    "extrapolated to an epoch; synthetic data of table II's shapes."
)


def _figure_9() -> tuple[Figure, Iterator[Result]]:
    title = "Model- and data-parallel, 4 workers × 8 engines"
    figure = Figure("figure 9", title, "mini-batch size B", "s per epoch")
    figure.log_y = True  # the sets differ by a hundred
    figure.note = SIMULATED

    def points() -> Iterator[Result]:
        for data_parallel in (False, True):
            for name in ("rcv1", "amazon_fashion"):
                for batch in (32, 64, 128, 256, 512, 1024):
                    seconds = _epoch_seconds(
                        name, workers=4, engines=8, batch=batch, data_parallel=data_parallel
                    )
                    if seconds is not None:
                        kind = "data-parallel" if data_parallel else "model-parallel"
                        yield figure.add(f"{name}, {kind}", batch, seconds)

    return figure, points()


def _speedup(
    number: int,
    title: str,
    x_label: str,
    *,
    sets: Sequence[str],
    values: Sequence[int],
    measure: Callable[[str, int], float | None],
) -> tuple[Figure, Iterator[Result]]:
    """A figure of speedups over the first of ``values``."""
    figure = Figure(f"figure {number}", title, x_label, "speedup", note=SIMULATED)

    def points() -> Iterator[Result]:
        slowest: dict[str, float] = {}
        for value in values:  # outside, so that nodes of one size are built once
            for name in sets:
                seconds = measure(name, value)
                if seconds is not None:
                    yield figure.add(name, value, slowest.setdefault(name, seconds) / seconds)

    return figure, points()


def _figure_10() -> tuple[Figure, Iterator[Result]]:
    return _speedup(
        10,
        "Mini-batch size, 8 workers × 8 engines",
        "mini-batch size B",
        sets=list(TABLE_II),
        values=(16, 32, 64, 128, 256, 512, 1024),
        measure=lambda name, batch: _epoch_seconds(name, workers=8, engines=8, batch=batch),
    )


def _figure_11() -> tuple[Figure, Iterator[Result]]:
    return _speedup(
        11,
        "Scale-up, 1 worker, B = 64",
        "engines",
        sets=("gisette", "real_sim", "rcv1"),
        values=(1, 2, 4, 8),
        measure=lambda name, engines: _epoch_seconds(name, workers=1, engines=engines, batch=64),
    )


def _figure_12() -> tuple[Figure, Iterator[Result]]:
    return _speedup(
        12,
        "Scale-out, 8 engines, B = 16",
        "workers",
        sets=list(TABLE_II),
        values=(1, 2, 4, 8),
        measure=lambda name, workers: _epoch_seconds(name, workers=workers, engines=8, batch=16),
    )


def _figure_14(files: Mapping[str, Path]) -> tuple[Figure, Iterator[Result]]:
    name = f"figure {LOSS_FIGURE}"
    figure = Figure(name, "Training loss, B = 64, 4 bits", "epoch", "logistic loss", log_x=False)
    figure.over = FLOAT64
    figure.note = "Golden model, which the RTL equals bit for bit; " + "; ".join(
        f"{name}: {files[name].name}" if name in files else f"{name}: synthetic samples, as wide"
        for name in LOSS_RATES
    )

    def points() -> Iterator[Result]:
        for name, rates in LOSS_RATES.items():
            data = _samples(name, files.get(name))
            for rate in rates:
                for epoch, (fixed_loss, float_loss) in enumerate(_losses(data, rate), start=1):
                    yield figure.add(f"{name}, γ={rate:g}, fixed point", epoch, fixed_loss)
                    yield figure.add(f"{name}, γ={rate:g}, {FLOAT64}", epoch, float_loss)

    return figure, points()


def _samples(name: str, file: Path | None) -> Dataset:
    """As many samples of a set as ``WORDS_AT_MOST`` holds, the first of a file or synthetic ones."""
    if file is None:
        shape = TABLE_II[name]
        return synthetic(name, shape, samples=min(shape.samples, WORDS_AT_MOST // shape.features))
    raw = read(str(file), Loss.LOGISTIC)
    count = min(len(raw.labels), WORDS_AT_MOST // raw.features.shape[1])
    some = replace(raw, features=raw.features[:count], labels=raw.labels[:count])
    return prepare(some, precision=DEFAULT_PRECISION, bias=True, test=0)


def _losses(data: Dataset, gamma: float, batch: int = 64) -> Iterator[tuple[float, float]]:
    """Loss of the golden and the float64 model after each epoch."""
    config = PRESETS["u280"]
    samples, columns = data.features.shape
    shape = TrainShape(node=config, workers=8, samples=samples, columns=columns, batch=batch)
    labels = fixed.labels(data.labels, Loss.LOGISTIC, config.frac)
    rate = fixed.learning_rate(gamma / batch)
    golden = train_golden(data.features, labels, shape, loss=Loss.LOGISTIC, rate=rate, epochs=LOSS_EPOCHS)
    float64 = train_float64(
        data.features,
        data.labels,
        loss=Loss.LOGISTIC,
        precision=DEFAULT_PRECISION,
        batch=batch,
        rate=gamma / batch,
        epochs=LOSS_EPOCHS,
    )
    for epoch, model in zip(golden, float64, strict=True):
        fa = metrics.activations(data.features, epoch.model, precision=DEFAULT_PRECISION, frac=config.frac)
        reference = metrics.activations_float64(data.features, model, precision=DEFAULT_PRECISION)
        yield tuple(metrics.score(a, data.labels, Loss.LOGISTIC).loss for a in (fa, reference))  # type: ignore[misc]


FIGURES: dict[int, Callable[[], tuple[Figure, Iterator[Result]]]] = {
    9: _figure_9,
    10: _figure_10,
    11: _figure_11,
    12: _figure_12,
}
