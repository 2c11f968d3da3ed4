"""The page of ``fanin train``: what it shows, and its HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.glm.golden.metrics import Measure
from fanin.glm.page import charts
from fanin.report.html import Rows, fill


@dataclass(frozen=True)
class Report:
    """Everything that the page shows.

    ``warning``: what is wrong with the model itself, if anything is. ``headline``: a few figures, large.
    ``losses``: of run, golden and binary64 a value per epoch, ``fits``: of run and binary64, by ``measure``.
    ``timeline``: the first mini-batches of some nodes, ``window`` says of which. ``allreduce_ns``: one latency
    per operation and node. ``stalls``: per node, cycles of forward by cause; ``causes``: what has the colour of
    each. ``counters``: per table, its header and rows; ``epochs`` is such a table.
    """

    title: str
    bit_exact: bool
    verdict: str
    warning: str
    headline: Rows
    losses: Mapping[str, Sequence[float]]
    measure: Measure
    fits: Mapping[str, Sequence[float]]
    timeline: Sequence[charts.Span]
    window: str
    cycle_ns: float
    allreduce_ns: Sequence[float]
    allreduce_marks: Mapping[str, float]
    stalls: Sequence[Mapping[str, int]]
    causes: Mapping[str, str]
    configuration: Mapping[str, Rows]
    counters: Mapping[str, Sequence[Sequence[str]]]
    epochs: Sequence[Sequence[str]]


def render(report: Report) -> str:
    """The report as one HTML document that refers to nothing outside itself."""
    losses, latencies = report.losses, report.allreduce_ns
    return fill(
        "glm.html.j2",
        title=report.title,
        report=report,
        loss=charts.loss_chart(losses),
        beside=[charts.difference_chart(losses), charts.fit_chart(report.fits, report.measure)],
        timeline=charts.timeline_chart(report.timeline, report.cycle_ns) if report.timeline else None,
        latency=charts.histogram_chart(latencies, report.allreduce_marks, "ns") if latencies else None,
        stalls=charts.stall_chart(report.stalls, report.causes) if report.stalls else None,
    )
