"""Charts of a GLM run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.glm.golden.metrics import ACCURACY, Measure
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.curves import curves_chart, epoch_axis, loss_axis
from fanin.report.palette import STYLES


@dataclass(frozen=True)
class Span:
    """One stage of one micro-batch, from cycle ``start`` to ``end`` (exclusive).

    ``stage``: F (words accepted by forward), C (from AGG sent to FA received) or B (words taken by backward).
    """

    node: int
    stage: str
    mini_batch: int
    micro_batch: int
    start: int
    end: int


STAGES = {"F": "forward", "C": "communication", "B": "backward"}
NAMES = {"run": "RTL", "golden": "golden model", "binary64": "float64", "difference": "RTL minus float64"}
_SHADES = (1.0, 0.55)  # opacity of even and odd mini-batches
_BINS = 60  # of the histogram


def loss_chart(losses: Mapping[str, Sequence[float]]) -> Chart:
    """Return the chart of loss per epoch for ``run``, ``golden`` and ``binary64``."""
    return _per_epoch(losses, loss_axis())


def difference_chart(losses: Mapping[str, Sequence[float]]) -> Chart:
    """Return the chart of the run's loss minus that of ``binary64``, per epoch."""
    differences = [run - exact for run, exact in zip(losses["run"], losses["binary64"], strict=True)]
    return _per_epoch({"difference": differences}, loss_axis("loss, RTL minus float64"))


def fit_chart(fits: Mapping[str, Sequence[float]], measure: Measure) -> Chart:
    """Return the chart of training accuracy or R² per epoch for ``run`` and ``binary64``."""
    name = f"{measure.name} of training samples"
    return _per_epoch(fits, Axis.share(name) if measure is ACCURACY else Axis(name, exact=".4f"))


def _per_epoch(values: Mapping[str, Sequence[float]], y: Axis) -> Chart:
    series = {NAMES[key]: (key, list(enumerate(epoch_values, start=1))) for key, epoch_values in values.items()}
    return curves_chart(series, epoch_axis(max(map(len, values.values()))), y)


def _stack(spans: Sequence[Span]) -> list[list[Span]]:
    """Distribute spans over the fewest rows in which no two spans overlap."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return rows


def timeline_chart(spans: Sequence[Span], cycle_ns: float) -> Chart:
    """Return the timeline of each micro-batch's forward, communication, backward; a row per node and stage."""
    names: list[str] = []
    bars: dict[str, list[Bar]] = {}
    for node in sorted({s.node for s in spans}):
        for stage in STAGES:
            stack = _stack([s for s in spans if s.node == node and s.stage == stage])
            for row_index, row in enumerate(stack, start=len(names)):
                bars.setdefault(stage, []).extend(_bar(span, row_index) for span in row)
            names += [f"node {node}: {stage}", *[""] * (len(stack) - 1)][: len(stack)]
    chart = Chart(
        "Timeline of micro-batches",
        Axis(f"cycles since start (1 cycle = {cycle_ns:g} ns)", ",", ","),
        rows=names,
        row=23,
        bars="overlay",
    )
    for stage, stage_bars in bars.items():
        chart.bars(f"{stage} {STAGES[stage]}", stage_bars, STYLES[STAGES[stage]], width=0.84)
    return chart


def _bar(span: Span, row: int) -> Bar:
    hint = (
        f"{STAGES[span.stage]} of micro-batch {span.micro_batch + 1} of mini-batch {span.mini_batch + 1}: "
        f"cycles {span.start:,} to {span.end:,} ({span.end - span.start:,})"
    )
    text = f"{span.mini_batch + 1}.{span.micro_batch + 1}"
    return Bar(row, span.end - span.start, hint, span.start, text, _SHADES[span.mini_batch % 2])


def histogram_chart(values: Sequence[float], marks: Mapping[str, float], unit: str) -> Chart:
    """Return a histogram with a logarithmic count axis; ``marks`` are named values drawn as lines."""
    low, high = min(values), max(values)
    margin = max((high - low) * 0.03, low * 0.02, 1.0)
    low, high = low - margin, high + margin
    width = (high - low) / _BINS
    counts = [0] * _BINS
    for value in values:
        counts[min(int((value - low) / width), _BINS - 1)] += 1
    max_count = max(counts)
    chart = Chart(
        "Histogram of AllReduce latency",
        Axis(f"latency, {unit}", ",", ends=(low, high)),
        Axis("operations", ",", log=True, ends=(0.7, 1.6 * max_count)),
        height=280,
    )
    bars = []
    for index, count in enumerate(counts):
        start, end = low + index * width, low + (index + 1) * width
        if count:
            bars.append(Bar((start + end) / 2, count, f"{start:,.0f} to {end:,.0f} {unit}: {count:,}"))
    chart.bars("operations", bars, STYLES["communication"], width=0.94 * width)
    for name, value in marks.items():
        chart.mark(value, f"{name} {value:,.0f}")
    return chart


def stall_chart(nodes: Sequence[Mapping[str, int]], causes: Mapping[str, str]) -> Chart:
    """Return a stacked bar per node: its forward cycles by cause.

    ``causes``, in order: cause → the entry of ``STYLES`` that gives its colour.
    """
    chart = Chart(
        "Cycles of forward by cause",
        Axis.share("cycles of forward", high=1.0),
        rows=[f"node {node}" for node in range(len(nodes))],
        bars="stack",
    )
    for cause, style in causes.items():
        bars = []
        for node, parts in enumerate(nodes):
            cycles, share = parts[cause], parts[cause] / sum(parts.values())
            bars.append(Bar(node, share, f"node {node}, {cause}: {cycles:,} cycles ({100 * share:.2f} %)"))
        chart.bars(cause, bars, STYLES[style])
    return chart
