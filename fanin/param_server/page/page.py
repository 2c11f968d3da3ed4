"""Page of a run with the parameter server: learning curves, timelines, staleness of gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fanin.param_server.page import beside, charts
from fanin.report.chart import Axis, Chart
from fanin.report.curves import curves_chart, epoch_axis, loss_axis
from fanin.report.html import Rows, Tables, fill
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Outcome

_ACCURACIES = {"held out": "accuracy", "training": "train_accuracy"}  #: names in STYLES → fields of an epoch
_CONVERGENCE = {"distance": "distance to w*", "gradient_norm": "gradient's norm", "loss_gap": "loss above w*'s"}


def param_server_page(metrics: Mapping[str, Any], outcomes: Sequence[Outcome], configuration: Tables) -> str:
    """Render the run as one HTML document without external references.

    - ``metrics``: the run's run.json; a null is not a number and is left out of charts.
    - ``outcomes``: of the run, then of the runs beside it, for the times of workers and servers. If the
      last run beside it did not finish, it has no outcome, and only ``error`` says so.
    - ``configuration``: the run's options.
    """
    options, epochs = metrics["configuration"], metrics["epochs"]
    histogram = {int(staleness): count for staleness, count in metrics["staleness"]["histogram"].items()}
    unit = Unit.of(metrics["simulated_seconds"])
    workers = f"{options['workers']} worker{'s' * (options['workers'] != 1)}"
    runs = [metrics, *metrics["beside"]][: len(outcomes)]
    return fill(
        "param_server.html.j2",
        title=f"{options['model']}: {options['algorithm']}, {workers}",
        fault=_fault(metrics),
        headline=_headline(metrics, unit),
        notes=stop_lines(metrics),
        sync=options["algorithm"] == "sync",
        timelines=beside.timelines(runs, outcomes),
        window=_window(outcomes, unit, metrics),
        beside=beside.table(runs) if len(runs) > 1 else None,
        beside_curves=beside.all_curves(runs) if len(runs) > 1 else [],
        accuracy=_curves(epochs, Axis.share("accuracy"), _ACCURACIES),
        loss=_curves(epochs, loss_axis("loss of training samples"), {"training": "loss"}),
        convergence=_convergence(epochs),
        staleness_chart=charts.staleness_chart(histogram, metrics["staleness"]["mean"]) if histogram else None,
        configuration=configuration,
        epochs=_epoch_table(epochs, unit),
    )


def stop_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the workers that stopped, and one on those that had finished before their stop."""
    options = metrics["configuration"]
    lines = [
        stopped_line(metrics["stopped"], of=options["workers"]),
        _unused_stops_line(metrics["unused_stops"]),
    ]
    return [line for line in lines if line]


def stopped_line(workers: Sequence[int], *, of: int) -> str:
    """Return a sentence on the workers that stopped, out of ``of``; empty if none did."""
    if not workers:
        return ""
    if len(workers) == of:
        return "all workers stopped answering: the run ends with the last update"
    names, pronoun = (
        (f"worker {workers[0]}", "it") if len(workers) == 1 else (f"workers {_join_numbers(workers)}", "them")
    )
    return f"{names} stopped answering; the others continued without {pronoun}"


def _unused_stops_line(workers: Sequence[int]) -> str:
    """Return a sentence on the workers that had finished before they were to stop; empty without any."""
    if not workers:
        return ""
    names, pronoun = (
        (f"worker {workers[0]}", "it") if len(workers) == 1 else (f"workers {_join_numbers(workers)}", "they")
    )
    return f"--stop changed nothing for {names}: by then {pronoun} had pushed the last gradient"


def _join_numbers(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}"


def _fault(metrics: Mapping[str, Any]) -> str:
    """Return the defect of the run; empty if it has none."""
    if metrics["gradients_lost"] or metrics["gradients_repeated"]:
        return "gradients were lost or applied again"
    return "the model diverged" if metrics["loss"] is None else metrics["error"] or ""


def _headline(metrics: Mapping[str, Any], unit: Unit) -> Rows:
    seconds = metrics["worker_seconds"]
    share = seconds["wait"] / (sum(seconds.values()) or 1)
    loss = metrics["loss"]
    return [
        ("test accuracy", f"{100 * metrics['accuracy']:.1f} %"),
        ("loss", "not finite" if loss is None else f"{loss:.4f}"),
        ("simulated time", unit(metrics["simulated_seconds"])),
        ("gradients applied", f"{metrics['gradients_applied']:,}"),
        ("mean staleness", f"{metrics['staleness']['mean']:.1f}"),
        ("workers wait", f"{100 * share:.1f} %"),
        ("a server is at work", f"{100 * (1 - _idle(metrics)):.1f} %"),
    ]


def _idle(metrics: Mapping[str, Any]) -> float:
    """Return the share of the run in which the average server is idle."""
    seconds = metrics["server_seconds"]
    return float(seconds["idle"]) / (sum(seconds.values()) or 1)


def _window(outcomes: Sequence[Outcome], unit: Unit, metrics: Mapping[str, Any]) -> str:
    """Return in words which part of the run the timeline shows."""
    if not all(outcome.spans for outcome in outcomes):
        return ""
    end = max(charts.window(outcome.spans) for outcome in outcomes)
    text = f"The first {Unit.of(end)(end)} of {unit(metrics['simulated_seconds'])}"
    share = metrics["waiting_beside_work"]
    return text if share is None else f"{text}; in {100 * share:.0f} % of the workers' waiting a server works"


def _curves(epochs: Sequence[Mapping[str, Any]], y: Axis, series: Mapping[str, str]) -> list[Chart]:
    """Return charts of the same values over epochs and over time; none with fewer than two points per line."""
    charts = []
    for key, x in (
        ("epoch", epoch_axis(len(epochs))),
        ("simulated_seconds", Axis.seconds("simulated time")),
    ):
        lines = {
            name: (name, [(epoch[key], epoch[field]) for epoch in epochs if epoch[field] is not None])
            for name, field in series.items()
        }
        if all(len(points) > 1 for _, points in lines.values()):  # a lone point says no more than the table
            charts.append(curves_chart(lines, x, y))
    return charts


def _convergence(epochs: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return charts of figure 8's measures; none without w* or with only one epoch."""
    charts = []
    for key, name in _CONVERGENCE.items():
        measures = [(e["epoch"], e["convergence"][key]) for e in epochs if e["convergence"]]
        points = [(epoch, value) for epoch, value in measures if value and value > 0]
        if len(points) > 1:
            series = {name: ("run", points)}
            charts.append(curves_chart(series, epoch_axis(len(epochs)), loss_axis(name, log=True)))
    return charts


def _epoch_table(epochs: Sequence[Mapping[str, Any]], unit: Unit) -> list[list[str]]:
    convergent = all(epoch["convergence"] for epoch in epochs)
    header = ["epoch", f"simulated, {unit.name}", "held out, %", "training, %", "loss"]
    rows = [header + list(_CONVERGENCE.values()) * convergent]
    for epoch in epochs:
        figures = [epoch["loss"], *((epoch["convergence"][key] for key in _CONVERGENCE) if convergent else ())]
        rows.append(
            [
                str(epoch["epoch"]),
                f"{epoch['simulated_seconds'] / unit.seconds:,.3f}",
                *(f"{100 * epoch[key]:.2f}" for key in ("accuracy", "train_accuracy")),
                *("–" if figure is None else f"{figure:.6f}" for figure in figures),
            ]
        )
    return rows
