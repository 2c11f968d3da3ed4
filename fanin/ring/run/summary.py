"""Summary that ``fanin ring train`` prints."""

from __future__ import annotations

from pathlib import Path

from fanin.report.unit import Unit
from fanin.ring.page.charts import PARTS
from fanin.ring.page.page import exact_line, notes, platform_text, title
from fanin.ring.run.metrics import Metrics
from fanin.runs.output import REPORT_FILE, table

SHOWN_EPOCHS = 20
_REFERENCES = ("binary32", "binary64")


def summary(metrics: Metrics, output: Path) -> str:
    """Return the summary of a run."""
    options, last = metrics["configuration"], metrics["epochs"][-1]
    unit = Unit.of(metrics["simulated_seconds"])
    accuracies = ", ".join(f"{100 * last[kind]['accuracy']:.1f} % in {kind}" for kind in _REFERENCES)
    facts = [
        ["test accuracy", f"{100 * metrics['accuracy']:.1f} %; without NICs {accuracies}"],
        ["weights", f"at most {metrics['distance']:.2g} from binary64's"],
        ["bit-exact", exact_line(metrics)],
        ["iteration", _iteration(metrics)],
        ["simulated", f"{unit(metrics['simulated_seconds'])}, {platform_text(options)}"],
    ]
    if metrics["counters"]:
        sent = f"{metrics['frames']:,} sent by nodes, {metrics['retransmitted']:,} retransmitted"
        facts.append(["frames", sent])
    facts.append(["report", str(output / REPORT_FILE)])
    lines = [f"  {note}" for note in notes(metrics)]
    return "\n".join(
        [title(metrics), "", _epochs(metrics, unit), "", *lines, *[""] * bool(lines), table(facts)]
    )


def _iteration(metrics: Metrics) -> str:
    iteration = {part: Unit.of(seconds)(seconds) for part, seconds in metrics["iteration"].items()}
    names = {part: name for part, name in PARTS.items() if part in iteration and part != "posting"}
    parts = ", ".join(f"{name} {iteration[part]}" for part, name in names.items())
    return f"{iteration['seconds']}: {parts}"


def _epochs(metrics: Metrics, unit: Unit) -> str:
    """Return the table of epochs; of many epochs, evenly spaced ones and the last."""
    epochs = metrics["epochs"]
    rows = [["epoch", "loss", *_REFERENCES, "accuracy", *_REFERENCES, "simulated"]]
    step = -(-len(epochs) // SHOWN_EPOCHS)
    for epoch in epochs:
        if epoch["epoch"] % step == 0 or epoch is epochs[-1]:
            runs = [epoch, *(epoch[kind] for kind in _REFERENCES)]
            losses = ["not finite" if run["loss"] is None else f"{run['loss']:.4f}" for run in runs]
            accuracies = [f"{100 * run['accuracy']:.1f} %" for run in runs]
            rows.append([str(epoch["epoch"]), *losses, *accuracies, unit(epoch["simulated_seconds"])])
    return table(rows, right=range(8))
