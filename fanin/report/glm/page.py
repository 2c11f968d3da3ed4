"""The page: what it shows, and its HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.report.glm import charts
from fanin.report.html import Rows, fill


@dataclass(frozen=True)
class Report:
    """Everything that the page shows.

    ``warning``: what is wrong with the model itself, if anything is. ``headline``: a few figures, large.
    ``losses``: per series a value per epoch. ``timeline``: the first mini-batches of some nodes.
    ``allreduce_ns``: one latency per operation and node. ``stalls``: per node, cycles of forward by cause.
    ``counters``: per table, its header and rows.
    """

    title: str
    bit_exact: bool
    verdict: str
    warning: str
    headline: Rows
    losses: Mapping[str, Sequence[float]]
    timeline: Sequence[charts.Span]
    cycle_ns: float
    allreduce_ns: Sequence[float]
    allreduce_marks: Mapping[str, float]
    stalls: Sequence[Mapping[str, int]]
    configuration: Mapping[str, Rows]
    counters: Mapping[str, Sequence[Sequence[str]]]


def render(report: Report) -> str:
    """The report as one HTML document that refers to nothing outside itself."""
    drawings = {
        "loss_chart": charts.loss_chart(report.losses) if report.losses else "",
        "timeline_chart": charts.timeline_chart(report.timeline, report.cycle_ns) if report.timeline else "",
        "latency_chart": charts.histogram_chart(report.allreduce_ns, report.allreduce_marks, "latency, ns")
        if report.allreduce_ns
        else "",
        "stall_chart": charts.stall_chart(report.stalls) if report.stalls else "",
    }
    return fill("glm.html.j2", report=report, stages=charts.STAGES, **drawings)
