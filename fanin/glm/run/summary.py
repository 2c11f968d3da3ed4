"""Summary that ``fanin train`` prints at the end of a run."""

from __future__ import annotations

from pathlib import Path

from fanin.glm.golden.metrics import ACCURACY
from fanin.glm.run.progress import label_text
from fanin.runs.output import CLASSES_FOLDER, REPORT_FILE, table
from fanin.runs.ranks import MeetingTimes
from fanin.sim.glm.classes import ClassesResult
from fanin.sim.glm.result import TrainResult

SHOWN_EPOCHS = 6
BIT_EXACT = "yes: every epoch's model equals the golden model"


def summary(result: TrainResult, output: Path) -> str:
    """Return the summary of one run."""
    clamps = result.total("clamps")
    rms_error = result.test_rms_error
    meetings = MeetingTimes()
    meetings.add(result.run.raw)
    facts = [
        [f"test {result.measure.name}", result.measure.text(result.test_fit)],
        *([["test RMS error", f"{rms_error:.4g}"]] if rms_error is not None else []),
        ["bit-exact", _exact(result)],
        ["learning rate", f"{result.training.gamma:g}"],
        *([["samples", result.layout_text]] * bool(result.layout_text)),
        ["cycles", f"{result.cycles:,}, {_utilisation(result)}"],
        [
            "AllReduce",
            f"{result.percentile(50):,.0f} ns median, {result.percentile(99):,.0f} ns 99th percentile",
        ],
        ["packets", f"{sum(result.run.raw.frames.values()):,} sent by nodes, {_losses(result)}"],
        *(
            [["clamps", f"{clamps:,} activations were clamped: a smaller --frac widens the range"]]
            * bool(clamps)
        ),
        *([["L2", _decay(result)]] * bool(result.l2)),
        *meetings.facts(),
        *([["warning", result.warning]] * bool(result.warning)),
        ["report", str(output / REPORT_FILE)],
    ]
    return "\n".join(
        [
            _heading(result),
            "",
            _epochs(result),
            "",
            table(facts),
        ]
    )


def summary_of_classes(joint: ClassesResult, output: Path) -> str:
    """Return the summary of a run with more than two classes."""
    classes, results = joint.model.classes or (), joint.results
    rows = [["class", "loss", "float64", "against the rest", "cycles"]]
    for label, result in zip(classes, results, strict=True):
        last = result.epochs[-1]
        losses = f"{last.loss:.4f}", f"{result.float64_loss[-1]:.4f}"
        rows.append([label_text(label), *losses, ACCURACY.text(last.fit), f"{result.cycles:,}"])
    facts = [
        ["accuracy", ACCURACY.text(joint.accuracy)],
        ["test accuracy", ACCURACY.text(joint.test_accuracy)],
        ["bit-exact", BIT_EXACT if joint.bit_exact else "NO"],
        ["learning rate", f"{results[0].training.gamma:g}"],
        *([["samples", results[0].layout_text]] * bool(results[0].layout_text)),
        *([["L2", _decay(results[0])]] * bool(results[0].l2)),
        *([["warning", joint.warning]] * bool(joint.warning)),
        ["reports", str(output / CLASSES_FOLDER / "*" / REPORT_FILE)],
    ]
    return "\n".join(
        [
            _heading(results[0], f"{len(classes)} classes, "),
            "",
            table(rows, right=range(1, 5)),
            "",
            table(facts),
        ]
    )


def _heading(result: TrainResult, prefix: str = "") -> str:
    training, shape = result.training, result.shape
    engines = f"{training.node.engines} engine{'s' * (training.node.engines > 1)}"
    return (
        f"{training.data}: {prefix}{shape.samples:,} samples × {result.columns:,} columns, "
        f"{training.loss.key} loss, {training.workers} × {training.node.name} node of {engines}"
    )


def _utilisation(result: TrainResult) -> str:
    """Return the share of cycles in which an engine takes a word, or the busiest sparse one an item."""
    share = f"{100 * result.cycles_ideal / result.cycles:.1f} %"
    if result.training.node.sparse:
        return f"the busiest engine takes an item in {share} of them"
    return f"{share} of them take a word"


def _exact(result: TrainResult) -> str:
    """Return whether the run was bit-exact, and for which columns this was compared."""
    local_workers = result.training.network.here
    if not (result.bit_exact and local_workers) or result.shape.data_parallel:
        return BIT_EXACT if result.bit_exact else "NO"
    workers = ", ".join(map(str, local_workers))
    return f"yes: after every epoch the columns of worker {workers} equal the golden model's"


def _decay(result: TrainResult) -> str:
    """Return the λ that was used, and its effect on the weights."""
    weights = "the weights, except the bias" if result.training.bias else "the weights"
    requested = result.training.l2
    share = f"each mini-batch takes 2^-{result.decay.shift} of {weights}"
    return f"λ = {result.l2:.4g} for {requested:g}: {share}; losses are the data's alone"


def _losses(result: TrainResult) -> str:
    retransmissions, duplicates = result.total("retransmissions"), result.total("duplicates")
    return f"{retransmissions:,} retransmitted, {duplicates:,} duplicate, {result.frames_rejected:,} rejected"


def _epochs(result: TrainResult) -> str:
    rows = [["epoch", "loss", "float64", result.measure.name, "cycles"]]
    count = len(result.epochs)
    for number in sorted({round(count ** (k / (SHOWN_EPOCHS - 1))) for k in range(SHOWN_EPOCHS)}):
        epoch, float64 = result.epochs[number - 1], result.float64_loss[number - 1]
        losses = map(result.measure.loss_text, (epoch.loss, float64))
        rows.append([str(number), *losses, result.measure.text(epoch.fit), f"{epoch.cycles:,}"])
    return table(rows, right=range(5))
