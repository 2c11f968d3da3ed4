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
    """Predict, and tell how well, where the labels are known."""
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
    found = {"model": str(args.model), "data": args.data} | _facts(model, source, predictions)
    if args.output:
        write_file(args.output, _csv(model, predictions, sums))
    if args.json:
        print_json(found | {"predictions": predictions[0].tolist()})
    else:
        print(_summary(found))
    return 0


def _facts(model: GlmModel, source: Source, predictions: tuple[Any, ...]) -> dict[str, Any]:
    """Return the figures: samples, correct labels or errors of targets, differences between the two models."""
    import numpy as np

    from fanin.glm.golden.metrics import r_squared

    fixed, float64 = predictions
    labels = source.labels
    found: dict[str, Any] = {"samples": len(fixed)}
    if model.classes is None:
        known = labels.astype(np.float64) if labels is not None and labels.dtype.kind == "f" else None
        rms = [None if known is None else float(np.sqrt(np.mean((p - known) ** 2))) for p in predictions]
        r2 = [None if known is None else r_squared(p, known) for p in predictions]
        return found | {
            "rms_error": rms[0],
            "float64_rms_error": rms[1],
            "r2": r2[0],
            "float64_r2": r2[1],
            "largest_difference": float(np.max(np.abs(fixed - float64))),
        }
    of_model = labels is not None and np.isin(labels, np.array(model.classes)).all()
    share = [float(np.mean(p == labels)) if of_model else None for p in predictions]
    return found | {
        "accuracy": share[0],
        "float64_accuracy": share[1],
        "differ": int(np.sum(fixed != float64)),
    }


def _csv(model: GlmModel, predictions: tuple[Any, ...], sums: tuple[Any, ...]) -> str:
    """Return CSV with a line per sample; with more than two classes, a line has a sum per class."""
    import csv
    import io

    several = sums[0].ndim == 2
    of_class = [f"sum_{label}" for label in model.classes or ()] if several else ["sum"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ["prediction", *of_class, "float64_prediction", *(f"float64_{name}" for name in of_class)]
    writer.writerow(map(cell, header))
    for fixed, fixed_sums, float64, float64_sums in zip(
        predictions[0].tolist(),
        sums[0].reshape(len(sums[0]), -1).tolist(),
        predictions[1].tolist(),
        sums[1].reshape(len(sums[1]), -1).tolist(),
        strict=True,
    ):
        labels = [cell(each) if isinstance(each, str) else each for each in (fixed, float64)]
        writer.writerow([labels[0], *fixed_sums, labels[1], *float64_sums])
    return text.getvalue()


def _summary(found: dict[str, Any]) -> str:
    """Return the summary for the terminal."""
    facts = [["samples", f"{found['samples']:,}"]]
    if "differ" in found:
        how = "unknown: no labels of the model's classes"
        if found["accuracy"] is not None:
            how = f"{100 * found['accuracy']:.1f} %; {100 * found['float64_accuracy']:.1f} % in float64"
        facts.append(["accuracy", how])
        differ = f"{found['differ']:,} of {found['samples']:,} samples: fixed point and float64"
        facts.append(["differ in", differ])
    else:
        how = "unknown: no targets"
        if found["rms_error"] is not None:
            how = f"{found['rms_error']:.4g}; {found['float64_rms_error']:.4g} in float64"
            facts.append(["R²", f"{found['r2']:.4f}; {found['float64_r2']:.4f} in float64"])
        facts.append(["RMS error", how])
        facts.append(["differ by", f"at most {found['largest_difference']:.4g}: fixed point and float64"])
    return table(facts)
