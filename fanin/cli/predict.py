"""``fanin predict``: predictions of a model of ``fanin train``, in fixed point and in float64."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.base.printable import cell
from fanin.base.scratch import write_file
from fanin.runs.output import MODEL_FILE, add_json, check_writable, print_json, table

if TYPE_CHECKING:  # --help must not wait for scikit-learn to load
    from fanin.glm.golden.model import GlmModel
    from fanin.sim.glm.data import Source


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "predict",
        help="use a trained model",
        description="Apply a model of fanin train to samples, with the nodes' fixed-point weights and, beside "
        "them, with the weights that float64 learned from the same samples.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="model.npz, or the run's folder")
    parser.add_argument("data", metavar="DATA", help="data as for fanin train; labels may be absent")
    parser.add_argument(
        "-o",
        type=Path,
        dest="output",
        metavar="FILE.csv",
        help="file of predictions and sums, a line per sample",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Predict, and print the accuracy or error if the labels are known."""
    from fanin.glm.golden.model import GlmModel
    from fanin.sim.glm.data import read_source

    if args.output:
        check_writable(args.output)
    model = GlmModel.load(args.model / MODEL_FILE if args.model.is_dir() else args.model)
    source = read_source(args.data, model.target or None, columns=model.columns, first_index=model.first_index)
    if not source.features.shape[0]:
        raise InputError(f"{args.data}: no samples")
    try:
        sums = model.activations(source.features)
    except ValueError as error:
        raise InputError(f"{args.data}: {error}") from error
    predictions = tuple(map(model.predict, sums))
    facts = {"model": str(args.model), "data": args.data} | _facts(model, source, predictions)
    if args.output:
        write_file(args.output, _csv(model, predictions, sums))
    if args.json:
        print_json(facts | {"predictions": predictions[0].tolist()})
    else:
        print(_summary(facts))
    return 0


def _facts(model: GlmModel, source: Source, predictions: tuple[Any, ...]) -> dict[str, Any]:
    """Return the number of samples, accuracy or errors, and the differences between the two models.

    ``predictions``: in fixed point, then in float64.
    """
    import numpy as np

    from fanin.glm.golden.metrics import r_squared, rms_error

    fixed, float64 = predictions
    labels = source.labels
    facts: dict[str, Any] = {"samples": len(fixed)}
    if model.classes is None:
        targets = labels.astype(np.float64) if labels is not None and labels.dtype.kind == "f" else None
        rms = [None if targets is None else rms_error(p, targets) for p in predictions]
        r2 = [None if targets is None else r_squared(p, targets) for p in predictions]
        return facts | {
            "rms_error": rms[0],
            "float64_rms_error": rms[1],
            "r2": r2[0],
            "float64_r2": r2[1],
            "largest_difference": float(np.max(np.abs(fixed - float64))),
        }
    of_model = labels is not None and np.isin(labels, np.array(model.classes)).all()
    share = [float(np.mean(p == labels)) if of_model else None for p in predictions]
    return facts | {
        "accuracy": share[0],
        "float64_accuracy": share[1],
        "differ": int(np.sum(fixed != float64)),
    }


def _csv(model: GlmModel, predictions: tuple[Any, ...], sums: tuple[Any, ...]) -> str:
    """Return CSV with a line per sample; with more than two classes, a line has a sum per class."""
    import csv
    import io

    is_multiclass = sums[0].ndim == 2
    sum_names = [f"sum_{label}" for label in model.classes or ()] if is_multiclass else ["sum"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ["prediction", *sum_names, "float64_prediction", *(f"float64_{name}" for name in sum_names)]
    writer.writerow(map(cell, header))
    for fixed, fixed_sums, float64, float64_sums in zip(
        predictions[0].tolist(),
        sums[0].reshape(len(sums[0]), -1).tolist(),
        predictions[1].tolist(),
        sums[1].reshape(len(sums[1]), -1).tolist(),
        strict=True,
    ):
        labels = [cell(label) if isinstance(label, str) else label for label in (fixed, float64)]
        writer.writerow([labels[0], *fixed_sums, labels[1], *float64_sums])
    return text.getvalue()


def _summary(facts: dict[str, Any]) -> str:
    """Return the summary for the terminal."""
    rows = [["samples", f"{facts['samples']:,}"]]
    if "differ" in facts:
        text = "unknown: no labels of the model's classes"
        if facts["accuracy"] is not None:
            text = f"{100 * facts['accuracy']:.1f} %; {100 * facts['float64_accuracy']:.1f} % in float64"
        rows.append(["accuracy", text])
        differ = f"{facts['differ']:,} of {facts['samples']:,} samples: fixed point and float64"
        rows.append(["differ in", differ])
    else:
        text = "unknown: no targets"
        if facts["rms_error"] is not None:
            text = f"{facts['rms_error']:.4g}; {facts['float64_rms_error']:.4g} in float64"
            rows.append(["R²", f"{facts['r2']:.4f}; {facts['float64_r2']:.4f} in float64"])
        rows.append(["RMS error", text])
        rows.append(["differ by", f"at most {facts['largest_difference']:.4g}: fixed point and float64"])
    return table(rows)
