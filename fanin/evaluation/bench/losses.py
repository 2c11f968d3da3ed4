"""Benchmark of P4SGD's figure 14: loss per epoch with features of few bits and with float64.

The golden model gives all points. Sparse nodes in RTL can train the first epochs of each curve, too; their
model must then equal the golden model bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy import sparse

from fanin import fixed
from fanin.base.errors import CheckFailed, InputError
from fanin.evaluation.bench.figure import Figure
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, ColumnRule, GlmConfig, TrainShape
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.quantise import ColumnRanges, Float64, fractions, quantise_sparse
from fanin.glm.golden.sample_layout import order_of
from fanin.glm.golden.train import Epoch, train
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.data import TABLE_II, read, split, synthetic

#: Learning rates γ of figure 14's curves, by data set; the step is γ / ``BATCH``.
RATES = {"rcv1": (1.0, 4.0), "avazu": (1.0, 4.0)}
EPOCHS = 10
BATCH = 64
WORKERS = 8
MAX_SAMPLES = 50_000  # all of rcv1, a share of avazu: minutes, not hours
FLOAT64 = "float64"
#: Nodes that train in RTL: all columns of avazu, in a simulator that is built in minutes.
RTL_NODE = replace(PRESETS["u280"], name="two engines", engines=2, sparse=True)
RTL_WORKERS = 2


@dataclass(frozen=True)
class Samples:
    """Data set before quantisation, in training order. ``source``: description for a reader."""

    name: str
    features: sparse.csr_matrix
    labels: Float64
    source: str


def figure_14(
    files: Mapping[str, Path], precisions: Sequence[int], rtl_epochs: int = 0
) -> tuple[list[Figure], Iterator[Result]]:
    """Return figure 14 without points, and an iterator that measures its points and adds them.

    The points are the loss after each epoch, at each precision and of float64 on features without quantisation.
    ``rtl_epochs``: epochs of each precision's curve that sparse nodes train in RTL, too; the iterator also
    yields their cycles. Raises CheckFailed if a bit of the model differs.
    """
    bits = " and ".join(str(precision) for precision in precisions)
    title = f"Training loss, B = {BATCH}, {bits} bits"
    figure = Figure("figure 14", title, "epoch", "logistic loss", log_x=False, over=FLOAT64)

    def points() -> Iterator[Result]:
        notes = []
        for name, rates in RATES.items():
            samples = read_samples(name, files.get(name))
            notes.append(samples.source)
            figure.note = "; ".join([_GOLDEN_NOTE, *_rtl_note(rtl_epochs), *notes])
            for rate in rates:
                for precision in precisions:
                    losses = fixed_losses(samples, rate, precision)
                    yield from _curve(figure, name, rate, f"{precision} bits", losses)
                    if rtl_epochs:
                        yield _rtl_result(samples, rate, precision, rtl_epochs)
                yield from _curve(figure, name, rate, FLOAT64, float64_losses(samples, rate))

    return [figure], points()


def _curve(figure: Figure, name: str, rate: float, curve: str, losses: Iterator[float]) -> Iterator[Result]:
    id_prefix = identifier("glm.figure_14", name, f"gamma {rate:g}", curve)
    for epoch, loss in enumerate(losses, start=1):
        result = figure.add(f"{name}, γ={rate:g}, {curve}", epoch, loss)
        yield replace(result, id=f"{id_prefix}.epoch_{epoch}", curve=curve)


_GOLDEN_NOTE = "Golden model, which the RTL equals bit for bit"


def _rtl_note(epochs: int) -> list[str]:
    """Return the note about epochs in RTL; none without them."""
    nodes = f"sparse nodes, {RTL_WORKERS} of {RTL_NODE.engines} engines, in RTL"
    return [f"epochs 1 to {epochs} of each precision also by {nodes}, to the same bits"] if epochs else []


def read_samples(name: str, file: Path | None) -> Samples:
    """Read a set's first samples, shuffled once; without a file, make synthetic ones of equal sparsity."""
    raw = (
        synthetic(name, TABLE_II[name], samples=min(TABLE_II[name].samples, MAX_SAMPLES))
        if file is None
        else read(str(file), Loss.LOGISTIC)
    )
    if raw.classes is None or len(raw.classes) != 2:
        raise InputError(f"{file}: {len(raw.classes or ())} classes: figure 14 needs two")
    order, _ = split(raw, test=0, shuffle=True, seed=0)
    order = order[order < MAX_SAMPLES]
    features = sparse.csr_matrix(raw.features)[order]
    set_size = len(raw.labels) if file else TABLE_II[name].samples
    entries_per_sample = features.count_nonzero() / len(order)
    source = (
        f"{name}: {file.name if file else 'synthetic'}, {len(order):,} of {set_size:,} samples, "
        f"{entries_per_sample:.3g} of {features.shape[1]:,} features are not 0"
    )
    return Samples(name, features, raw.labels[order], source)


def fixed_losses(samples: Samples, gamma: float, precision: int) -> Iterator[float]:
    """Yield the golden model's loss after each epoch, on its quantised features."""
    config, features = PRESETS["u280"], _codes(samples, precision)
    for epoch in _golden(samples, features, gamma, precision, EPOCHS):
        fa = metrics.activations(features, epoch.model, precision=precision, frac=config.frac)
        yield metrics.score(fa, samples.labels, Loss.LOGISTIC).loss


def _codes(samples: Samples, precision: int) -> sparse.csr_matrix:
    """Return the quantised features, with the bias. Raises InputError."""
    try:
        return quantise_sparse(samples.features, ColumnRanges.of(samples.features), precision, bias=True)
    except ValueError as error:
        raise InputError(f"{samples.name}: {error}") from error


def _golden(
    samples: Samples, features: sparse.csr_matrix, gamma: float, precision: int, epochs: int
) -> Iterator[Epoch]:
    """Yield the epochs of the golden model."""
    config, (count, columns) = PRESETS["u280"], features.shape
    shape = TrainShape(
        node=config, workers=WORKERS, samples=count, columns=columns, batch=BATCH, precision=precision
    )
    labels = fixed.labels(samples.labels, Loss.LOGISTIC, config.frac)
    rate = fixed.learning_rate(gamma / BATCH)
    return train(features, labels, shape, loss=Loss.LOGISTIC, rate=rate, epochs=epochs)


def _rtl_result(samples: Samples, gamma: float, precision: int, epochs: int) -> Result:
    """Train a curve's first epochs on sparse nodes in RTL, and return their cycles.

    Raises CheckFailed if a model differs from the golden one, or if sums are clamped. A clamped sum depends on
    the places of the columns, which differ between the curve's nodes and these.
    """
    features = _codes(samples, precision)
    golden = list(_golden(samples, features, gamma, precision, epochs))
    name = f"{samples.name}, γ={gamma:g}, {precision} bits"
    if clamps := sum(epoch.clamps for epoch in golden):
        raise CheckFailed(f"{name}: {clamps:,} sums are clamped; omit --rtl")
    node = RTL_NODE
    sizes = {"workers": RTL_WORKERS, "engines": node.engines, "lanes": node.lanes}
    order = order_of(features, ColumnRule.FREQUENCY, sizes)
    shape = TrainShape(
        node=node,
        workers=RTL_WORKERS,
        samples=features.shape[0],
        columns=order.padded,
        batch=BATCH,
        precision=precision,
    )
    run = _rtl_nodes(node).train(
        shape,
        order.permute(features),
        fixed.labels(samples.labels, Loss.LOGISTIC, node.frac),
        loss=Loss.LOGISTIC,
        rate=fixed.learning_rate(gamma / BATCH),
        epochs=epochs,
    )
    for number, (model, epoch) in enumerate(zip(run.models, golden, strict=True), start=1):
        if not np.array_equal(order.to_data(model), epoch.model):
            raise CheckFailed(f"{name}: after epoch {number} the RTL's model differs from the golden model")
    return Result(
        f"{name}: {epochs} epoch{'s' * (epochs > 1)} in RTL",
        sum(run.cycles),
        "cycles",
        note=f"bit-exact, {RTL_WORKERS} workers of {node.engines} sparse engines",
        id=identifier("glm.figure_14_rtl", samples.name, f"gamma {gamma:g}", f"{precision} bits", "cycles"),
    )


@cache
def _rtl_nodes(node: GlmConfig) -> Cosim:
    return Cosim(node, workers=RTL_WORKERS, quiet=True)


def float64_losses(samples: Samples, gamma: float) -> Iterator[float]:
    """Yield the loss of the same training in float64, on scaled features without rounding."""
    features = fractions(samples.features, ColumnRanges.of(samples.features), bias=True)
    models = train_float64(
        features,
        samples.labels,
        loss=Loss.LOGISTIC,
        precision=0,
        batch=BATCH,
        rate=gamma / BATCH,
        epochs=EPOCHS,
    )
    for model in models:
        fa = metrics.activations_float64(features, model, precision=0)
        yield metrics.score(fa, samples.labels, Loss.LOGISTIC).loss
