"""The charts of a run with the parameter server, as in RDMA-wild's figures 5 to 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STYLES
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Span

#: What workers do, in words, and what has its colour.
KINDS = {
    "compute": ("computes", "compute"),
    "push": ("pushes", "communication"),
    "wait": ("waits", "waiting"),
}
_WORK, _PUSH = 0.54, 0.24  # of a row: the bars of computing and waiting, and those below them
WINDOW = 8  # mini-batches of the median worker in the timeline
BARS = 100  # of the histogram


def worker_seconds(spans: Sequence[Span], workers: int) -> dict[str, float]:
    """What each kind takes of a worker's time in the whole run: the workers' mean."""
    sums = dict.fromkeys(KINDS, 0.0)
    for span in spans:
        sums[span.kind] += span.end - span.begin
    return {kind: total / workers for kind, total in sums.items()}


def window(spans: Sequence[Span]) -> float:
    """When the median worker has computed its first ``WINDOW`` gradients, or what it computes at all."""
    ends: dict[int, list[float]] = {}
    for span in spans:
        if span.kind == "compute":
            ends.setdefault(span.worker, []).append(span.end)
    return median(sorted(each)[:WINDOW][-1] for each in ends.values())


def workers_chart(spans: Sequence[Span], workers: int) -> Chart:
    """What every worker does in the ``window``: computing and waiting, and below them pushing.

    With several slots a worker pushes one gradient while it computes the next.
    """
    end = window(spans)
    chart = Chart(
        "Timeline of the workers",
        Axis.seconds("simulated time", high=end),
        rows=[f"worker {worker}" for worker in range(workers)],
        bars="overlay",
    )
    bars: dict[str, list[Bar]] = {kind: [] for kind in KINDS}
    computed = [0] * workers
    for span in sorted(spans, key=lambda span: span.begin):
        if span.kind == "compute":
            computed[span.worker] += 1
        if span.begin < end:
            bars[span.kind].append(_bar(span, computed[span.worker]))
    for kind, (_, like) in KINDS.items():
        chart.bars(kind, bars[kind], STYLES[like], width=_PUSH if kind == "push" else _WORK)
    return chart


def _bar(span: Span, version: int) -> Bar:
    """``version``: of the gradient that is computed, or that was computed last."""
    row = span.worker + (_WORK / 2 if span.kind == "push" else -_PUSH / 2)
    unit = Unit.of(span.end)
    times = f"{unit(span.begin)} to {unit(span.end)}"
    what = "" if span.kind == "wait" else f" gradient {version}"
    hint = f"worker {span.worker} {KINDS[span.kind][0]}{what}: {times}"
    text = str(version) if span.kind == "compute" else ""
    return Bar(row, span.end - span.begin, hint, span.begin, text)


def staleness_chart(histogram: Mapping[int, int], mean: float) -> Chart:
    """How many gradients were so many updates old; the mean is marked."""
    oldest = max(histogram)
    step = -(-(oldest + 1) // BARS)
    counts: dict[int, int] = {}
    for age, times in histogram.items():
        counts[age // step] = counts.get(age // step, 0) + times
    chart = Chart(
        "Histogram of staleness",
        Axis.count(
            "updates by others that the gradient's model had not had",
            oldest,
            ends=(-0.5, max(oldest, 9) + 0.5),
        ),
        Axis.count("gradients", max(counts.values())),
        height=280,
    )
    bars = []
    for place, times in sorted(counts.items()):
        first, last = place * step, (place + 1) * step - 1
        ages = f"{first}" if step == 1 else f"{first} to {last}"
        bars.append(Bar((first + last) / 2, times, f"{ages}: {times:,}"))
    chart.bars("gradients", bars, STYLES["run"], width=0.9 * step)
    chart.mark(mean, f"mean {mean:.2f}")
    return chart
