"""Benchmark of the effect of gradient codecs on training: INCEPTIONN's figures 13 and 14 and table III.

``codec_training_costs`` measures figures 3, 4, 5, 7 and 12.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.extras import how_to_install
from fanin.base.scratch import write_file
from fanin.codec.facts import Bfp, Inceptionn, Mode, Mx
from fanin.evaluation.bench import codec_training_costs as costs
from fanin.evaluation.bench.codec_training_bench import HDC, TEMPLATES, Bench
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result
from fanin.evaluation.models import exchange_cost
from fanin.evaluation.origins.graph import identifier
from fanin.runs.output import check_writable
from fanin.runs.progress import progress_bar
from fanin.sim.codec import tags
from fanin.sim.codec.effects import CODECS, EXTRA_EPOCHS, NO_CODEC, Effect, effects, fidelities, more_epochs
from fanin.sim.codec.tasks import TASKS, hdc
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import AnyCodec, Truncation

PAGE = "codec-training.md"
MILD_CODEC, HARSH_CODEC = "INCEPTIONN 2^-10, strict", "24 LSBs truncated"
#: Codecs whose trainings are repeated with more epochs, for figure 13.
EXTENDED_CODECS = (MILD_CODEC, "INCEPTIONN 2^-10, published", "INCEPTIONN 2^-6, strict", HARSH_CODEC)
#: Limits for the task that truncation hurts: points lost at most with MILD_CODEC, at least with HARSH_CODEC.
MAX_LOST, MIN_LOST = 1.0, 10.0
MAX_MORE_EPOCHS = EXTRA_EPOCHS[-1]
FEW_MORE_EPOCHS = 2  # more epochs for the same accuracy in the paper (section VIII-B)
RATE_FACTORS = (0.5, 1, 2, 4)  # factors of the learning rate, for the task that truncation hurts
MIN_SHOWN_ACCURACY = 94.0  # lower end of the picture's axis, in % of the accuracy without a codec


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield the figures as they are measured; write their pictures and a page of tables into ``args.output``.

    Raises InputError for less than one seed, unusable MNIST files or a folder that cannot be written.
    """
    if args.seeds < 1:
        raise InputError(f"--seeds {args.seeds}: must be at least 1")
    page = args.output / PAGE
    check_writable(page)
    with progress_bar(unit=" trainings") as bar:
        bench = Bench(_trainings(args.networks or list(TASKS), args.mnist), args.seeds, args.output, bar)
        parts: dict[int, Callable[[Bench], Iterator[Result]]] = {**costs.PARTS, 14: _figure_14}
        for number in sorted(args.figure or parts):
            try:
                yield from parts[number](bench)
            except ModuleNotFoundError as error:
                instruction = how_to_install(error) or error
                print(f"fanin: warning: figure {number} is left out: {instruction}", file=sys.stderr)
    write_file(page, "\n".join(bench.tables))


def _trainings(names: Sequence[str], mnist: Path | None) -> dict[str, Training]:
    """Return the trainings whose packages are installed; report missing packages on stderr."""
    if mnist and HDC not in names:
        raise InputError(f"--mnist {mnist}: only {HDC} trains on it, and --networks leaves it out")
    trainings = {}
    for name in names:
        try:
            trainings[name] = hdc(mnist) if name == HDC else TASKS[name]()
        except ImportError as error:
            print(f"fanin: warning: {name} is left out: {error}", file=sys.stderr)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # the same seed, the same bits
    return trainings


def _figure_14(bench: Bench) -> Iterator[Result]:
    """Yield figures 13 and 14 and table III, network by network."""
    paths = outputs("inceptionn-figure14", bench.folder)
    figures: list[Figure] = []
    form_rows: list[tuple[object, ...]] = []
    for network, training in bench.trainings.items():
        figure = Figure("figure 14", network, "compression ratio", "accuracy, % of none's", log_x=False)
        figure.y_from = MIN_SHOWN_ACCURACY
        figures.append(figure)
        effect_by_codec: dict[str, Effect] = {}
        epochs_by_codec: dict[str, list[int | None]] = {}
        for codec, effect in effects(training, bench.seeds, on_run=bench.count_training):
            effect_by_codec[codec] = effect
            yield from _effect_figures(network, codec, effect)
            if codec in EXTENDED_CODECS:
                epochs_by_codec[codec] = more_epochs(training, CODECS[codec], effect)
                yield from _more_epochs_figures(network, training, codec, effect, epochs_by_codec[codec])
            if codec != NO_CODEC:
                relative = 100 * effect.accuracy.mean / effect_by_codec[NO_CODEC].accuracy.mean
                figure.add(_family(CODECS[codec]), effect.ratio.mean, relative)
        figure.series = {name: sorted(points) for name, points in figure.series.items()}
        _accuracy_table(bench, network, training, effect_by_codec, epochs_by_codec)
        form_rows += list(_form_rows(network, effect_by_codec))
        if network == TEMPLATES:
            yield from _rate_figures(bench, training)
    bench.table("Table III", ("network", "codec", "2 bits", "10 bits", "18 bits", "34 bits"), form_rows)
    if figures:
        write(figures, paths)


def _effect_figures(network: str, codec: str, effect: Effect) -> Iterator[Result]:
    """Yield accuracy, lost accuracy and compression ratio of a network's trainings with a codec."""
    name, id_prefix = f"{network}: {codec}", _id_prefix(network, codec)
    note = f"± {effect.accuracy.deviation:.1f}"
    yield Result(f"{name}: accuracy", effect.accuracy.mean, "%", note=note, id=f"{id_prefix}.accuracy")
    note, figure_id = f"± {effect.lost.deviation:.1f}", f"{id_prefix}.lost"
    lost = partial(Result, f"{name}: lost", effect.lost.mean, "points", note=note, id=figure_id)
    if network == TEMPLATES and codec in (MILD_CODEC, HARSH_CODEC):
        yield lost(limit=MAX_LOST) if codec == MILD_CODEC else lost(limit=MIN_LOST, at_least=True)
    else:
        yield lost()
    published = _published_shares(network, codec)
    paper = f"; the paper: {tags.ratio(published):.1f}" if published else ""
    note = f"± {effect.ratio.deviation:.1f}{paper}"
    yield Result(f"{name}: ratio", effect.ratio.mean, "× smaller", note=note, id=f"{id_prefix}.ratio")
    if isinstance(CODECS[codec], Inceptionn):
        yield from _share_figures(name, id_prefix, effect, published)


def _family(config: AnyCodec) -> str:
    """Return the series of the picture that a codec belongs to."""
    match config:
        case Inceptionn():
            return f"INCEPTIONN, {config.mode.name.lower()}"
        case Truncation():
            return "LSBs truncated"
        case Bfp():
            return "BFP16"
        case Mx():
            return f"MX, {config.rounding.name.lower()}"
    return "bf16, fp16"


def _id_prefix(network: str, codec: str) -> str:
    """Return the prefix of the identifiers of a network's trainings with a codec."""
    return identifier("inceptionn.training", network, codec)


def _share_figures(name: str, id_prefix: str, effect: Effect, published: Sequence[float]) -> Iterator[Result]:
    """Yield the share of transferred values in each form: table III."""
    for n, (bits, share) in enumerate(zip(tags.FORM_BITS, effect.shares, strict=True)):
        note = f"± {share.deviation:.1f}" + (f"; the paper: {published[n]:.1f}" if published else "")
        yield Result(
            f"{name}: {bits} bits", share.mean, "% of values", note=note, id=f"{id_prefix}.bits_{bits}"
        )


def _published_shares(network: str, codec: str) -> Sequence[float]:
    """Return table III's shares of the digit classifier; empty if the table has none for the codec."""
    config = CODECS[codec]
    if network != HDC or not isinstance(config, Inceptionn) or config.mode is not Mode.PUBLISHED:
        return ()
    return tags.TABLE_III["HDC"][tags.BOUNDS.index(config.bound)]


def _more_epochs_figures(
    network: str, training: Training, codec: str, effect: Effect, epochs_by_seed: Sequence[int | None]
) -> Iterator[Result]:
    """Yield figure 13: additional epochs, and the remaining speed-up of the paper's benchmark."""
    sufficient = [epochs for epochs in epochs_by_seed if epochs is not None]
    name = f"{network}: {codec}"
    note = f"with 0 to {MAX_MORE_EPOCHS} epochs more: {_epochs_text(epochs_by_seed)}"
    note += "; the paper: 1 or 2" if isinstance(CODECS[codec], Inceptionn) else ""
    yield Result(f"{name}: seeds that end equal", len(sufficient), f"of {len(epochs_by_seed)}", note=note)
    seeds_with_few = sum(epochs <= FEW_MORE_EPOCHS for epochs in sufficient)
    text = f"{name}: … with at most {FEW_MORE_EPOCHS} epochs more"
    figure_id = f"{_id_prefix(network, codec)}.few_more_epochs"
    yield Result(text, 100 * seeds_with_few / len(epochs_by_seed), "% of seeds", id=figure_id)
    if network == HDC and isinstance(CODECS[codec], Inceptionn) and sufficient:
        benchmark = next(row for row in exchange_cost.BENCHMARKS if row.name == "HDC")
        slowdown = 1 + sum(sufficient) / len(sufficient) / training.epochs
        speedup = exchange_cost.speedup(benchmark, effect.ratio.mean) / slowdown
        note = "with its mean number of epochs; the paper: 2.2 to 3.1 of its four networks"
        yield Result(f"figure 13: HDC, {codec}", speedup, "× WA", note=note)


def _epochs_text(epochs_by_seed: Sequence[int | None]) -> str:
    """Return numbers of epochs as text, with a dash for a seed that never reaches the accuracy."""
    return ", ".join("–" if epochs is None else str(epochs) for epochs in epochs_by_seed)


def _accuracy_table(
    bench: Bench,
    network: str,
    training: Training,
    effect_by_codec: dict[str, Effect],
    epochs_by_codec: dict[str, list[int | None]],
) -> None:
    fidelity_by_codec = fidelities(training)
    columns = ("codec", "ratio", "accuracy, %", "lost, points", "more epochs", "length", "cosine")
    rows = [
        (
            codec,
            effect.ratio,
            effect.accuracy,
            effect.lost,
            _epochs_text(epochs_by_codec[codec]) if codec in epochs_by_codec else "",
            f"{fidelity_by_codec[codec].length.mean:.2f}",
            f"{fidelity_by_codec[codec].cosine.mean:.3f}",
        )
        for codec, effect in effect_by_codec.items()
    ]
    bench.table(f"Figures 13 and 14: {network}", columns, rows)


def _rate_figures(bench: Bench, training: Training) -> Iterator[Result]:
    """Yield accuracies at other learning rates: a higher rate may compensate for truncation."""
    rows = []
    for factor in RATE_FACTORS:
        descent = replace(training.descent, rate=factor * training.descent.rate)
        codecs = {name: CODECS[name] for name in (NO_CODEC, MILD_CODEC, HARSH_CODEC)}
        effect_by_codec = dict(
            effects(replace(training, descent=descent), bench.seeds, codecs, bench.count_training)
        )
        for codec, effect in effect_by_codec.items():
            name, note = f"{TEMPLATES}, rate {descent.rate:g}: {codec}", f"± {effect.accuracy.deviation:.1f}"
            yield Result(f"{name}: accuracy", effect.accuracy.mean, "%", note=note)
        rows.append((f"{descent.rate:g}", *(effect.accuracy for effect in effect_by_codec.values())))
    columns = ("rate", NO_CODEC, MILD_CODEC, HARSH_CODEC)
    bench.table("Accuracy in per cent at other rates: templates", columns, rows)


def _form_rows(network: str, effect_by_codec: dict[str, Effect]) -> Iterator[tuple[object, ...]]:
    """Yield rows of table III; the paper's rows follow those of the digit classifier."""
    for codec, effect in effect_by_codec.items():
        if isinstance(CODECS[codec], Inceptionn):
            yield network, codec, *effect.shares
    if network == HDC:
        for bound, shares in zip(tags.BOUNDS, tags.TABLE_III["HDC"], strict=True):
            yield "the paper's HDC", f"INCEPTIONN 2^-{bound}", *shares
