"""Content of the report of ``fanin train``, and its HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.glm.golden.metrics import Measure
from fanin.glm.page import charts
from fanin.report.html import Rows, fill


@dataclass(frozen=True)
class Report:
    """Content of the report of a GLM training.

    - ``warning``: defect of the trained model itself; empty if none.
    - ``headline``: a few key figures, shown large.
    - ``losses``: a value per epoch for ``run``, ``golden`` and ``binary64``.
    - ``fits``: a value per epoch for ``run`` and ``binary64``, measured by ``measure``.
    - ``timeline``: spans of the first micro-batches of some nodes; ``window`` says in words which.
    - ``allreduce_ns``: one latency per operation and node; ``allreduce_marks``: percentiles by name.
    - ``stalls``: per node, forward cycles by cause; ``causes``: the style that colours each cause.
    - ``counters``: tables by name, each a header and rows; ``epochs`` is one such table.
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
    """Render the report as one HTML document without external references."""
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
