"""Summary of a run as ``fanin cluster run`` prints it."""

from __future__ import annotations

from pathlib import Path

from fanin.cnn.page.page import NAMES, exact_line, machines_in, title
from fanin.cnn.run.metrics import Metrics
from fanin.runs.output import REPORT_FILE, table

SHOWN_EPOCHS = 20


def summary(metrics: Metrics, output: Path, more_rows: list[list[str]]) -> str:
    """Return the summary of ``metrics``.

    ``more_rows``: more rows of the table, of facts that are in no file.
    """
    other_machines = machines_in(metrics)[1:]
    last = metrics["epochs"][-1]
    other_accuracies = ", ".join(
        f"{100 * last[name]['accuracy']:.1f} % {NAMES[name]}" for name in other_machines
    )
    facts = [
        [
            "test accuracy",
            f"{100 * metrics['accuracy']:.1f} %" + (f"; {other_accuracies}" if other_accuracies else ""),
        ],
        ["bit-exact", exact_line(metrics)],
        *_throughput(metrics),
        *more_rows,
        ["last state", str(output / metrics["checkpoints"][-1])],
        ["report", str(output / REPORT_FILE)],
    ]
    return "\n".join([title(metrics), "", _epochs(metrics), "", table(facts)])


def _throughput(metrics: Metrics) -> list[list[str]]:
    """Return the measured steady throughput and its share of the plan's; empty if none was measured."""
    hardware = metrics["hardware"]
    if not hardware or not hardware["frames_per_second"]:
        return []
    planned = f"{100 * hardware['of_planned']:.1f} % of the plan's {metrics['build']['throughput']:,.0f}"
    return [["throughput", f"{hardware['frames_per_second']:,.0f} frames/s, {planned}"]]


def _epochs(metrics: Metrics) -> str:
    """Return a table of about ``SHOWN_EPOCHS`` evenly spaced epochs and the last one."""
    epochs, machines = metrics["epochs"], machines_in(metrics)
    rows = [["epoch", "lr", *(f"loss {name}" for name in machines), *(f"accuracy {name}" for name in machines)]]
    interval = -(-len(epochs) // SHOWN_EPOCHS)
    for epoch in epochs:
        if epoch["epoch"] % interval == 0 or epoch is epochs[-1]:
            losses = ["not finite" if epoch[n]["loss"] is None else f"{epoch[n]['loss']:.4f}" for n in machines]
            accuracies = [f"{100 * epoch[n]['accuracy']:.1f} %" for n in machines]
            rows.append([str(epoch["epoch"]), f"{epoch['lr']:.4g}", *losses, *accuracies])
    return table(rows, right=range(len(rows[0])))
