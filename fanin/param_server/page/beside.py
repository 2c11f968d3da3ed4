"""Comparison of several runs: their differing options, a table, timelines, accuracy and loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.param_server.page import charts
from fanin.report.chart import Axis, Chart
from fanin.report.curves import epoch_axis, loss_axis
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Outcome

Metrics = Mapping[str, Any]


def names_of(runs: Sequence[Metrics]) -> list[str]:
    """Return a name per run: the options in which any two runs differ."""
    options = [run["configuration"] for run in runs]
    differ = [key for key in options[0] if any(other[key] != options[0][key] for other in options)]
    changes = [
        {key: options_of_run[key] for key in differ if options_of_run[key] is not None}
        for options_of_run in options
    ]
    return [
        ", ".join(f"{key.replace('_', '-')} {value}" for key, value in changes_of_run.items())
        for changes_of_run in changes
    ]


def table(runs: Sequence[Metrics]) -> list[list[str]]:
    """Return a header row and a row per run; shares are of the run's own simulated time."""
    first = runs[0]["simulated_seconds"]
    unit = Unit.of(first)
    header = [
        "run",
        "simulated",
        "of the first one's",
        "accuracy",
        "loss",
        "mean staleness",
        *(f"worker: {kind}" for kind in runs[0]["worker_seconds"]),
        *(f"server: {kind}" for kind in runs[0]["server_seconds"]),
    ]
    rows = [header]
    for name, run in zip(names_of(runs), runs, strict=True):
        seconds = run["simulated_seconds"]
        shares = [
            kind_seconds for role in ("worker", "server") for kind_seconds in run[f"{role}_seconds"].values()
        ]
        rows.append(
            [
                name,
                unit(seconds),
                f"{seconds / first:.3f}×" if first else "–",
                f"{100 * run['accuracy']:.2f} %",
                "not finite" if run["loss"] is None else f"{run['loss']:.4f}",
                f"{run['staleness']['mean']:.1f}",
                *(f"{100 * kind_seconds / (seconds or 1):.1f} %" for kind_seconds in shares),
            ]
        )
    return rows


def timelines(runs: Sequence[Metrics], outcomes: Sequence[Outcome]) -> list[Chart]:
    """Return a timeline per run, all with the time axis of the slowest run's window."""
    spans_of_runs = [outcome.spans for outcome in outcomes]
    if not all(spans_of_runs):
        return []
    end = max(charts.window(spans) for spans in spans_of_runs)
    return [
        charts.timeline_chart(
            outcome,
            run["configuration"]["workers"],
            run["configuration"]["servers"],
            end,
            f"Timeline of {name}" if name else "Timeline",
        )
        for name, run, outcome in zip(names_of(runs), runs, outcomes, strict=True)
    ]


def curves(runs: Sequence[Metrics], key: str, y: Axis) -> list[Chart]:
    """Return charts of a value over epochs and over simulated time; none if a run has only one epoch."""
    if any(len(run["epochs"]) < 2 for run in runs):
        return []
    axes = {
        "epoch": epoch_axis(max(len(run["epochs"]) for run in runs)),
        "simulated_seconds": Axis.seconds("simulated time"),
    }
    return [
        charts.beside_chart(
            {
                name: [(epoch[axis_key], epoch[key]) for epoch in run["epochs"] if epoch[key] is not None]
                for name, run in zip(names_of(runs), runs, strict=True)
            },
            x,
            y,
        )
        for axis_key, x in axes.items()
    ]


def all_curves(runs: Sequence[Metrics]) -> list[Chart]:
    """Return charts of accuracy on held-out samples, and of loss on training samples."""
    return [
        *curves(runs, "accuracy", Axis.share("accuracy")),
        *curves(runs, "loss", loss_axis("loss of training samples")),
    ]
