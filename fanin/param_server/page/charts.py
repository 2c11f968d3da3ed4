"""Charts of a run with the parameter server, as in RDMA-wild's figures 5 to 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fanin.report.chart import Axis, Bar, Chart, Point
from fanin.report.palette import STYLES, Style, step_colour
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Outcome, ServerSpan, Span

#: Activity of workers and servers: its name in words, and the style that colours it.
KINDS = {
    "compute": ("computes", "compute"),
    "update": ("updates", "update"),
    "push": ("pushes", "communication"),
    "wait": ("waits", "waiting"),
}
_WORK, _PUSH = 0.54, 0.24  # heights within a row: bars of computing and waiting, and bars of pushing below them
WINDOW = 8  # mini-batches of the median worker shown in the timeline
BARS = 100  # most bars of the histogram


def window(spans: Sequence[Span]) -> float:
    """Return the time at which the median worker has computed its first ``WINDOW`` gradients, or all if fewer.

    If computing takes no time, pushing counts instead.
    """
    kind = "compute" if any(span.kind == "compute" for span in spans) else "push"
    ends: dict[int, list[float]] = {}
    for span in spans:
        if span.kind == kind:
            ends.setdefault(span.worker, []).append(span.end)
    return median(sorted(each)[:WINDOW][-1] for each in ends.values())


def timeline_chart(outcome: Outcome, workers: int, servers: int, end: float, name: str = "Timeline") -> Chart:
    """Return the timeline of every worker and server until ``end``: computing, updating, waiting; pushes below.

    With several slots a worker pushes one gradient while it computes the next.
    """
    numbers = {"worker": range(workers), "server": range(servers)}
    rows = [f"{who} {number}" for who, those in numbers.items() for number in those]
    chart = Chart(name, Axis.seconds("simulated time", high=end), rows=rows, bars="overlay")
    bars: dict[str, list[Bar]] = {kind: [] for kind in KINDS}
    computed = [0] * workers
    for span in sorted(outcome.spans, key=lambda span: span.begin):
        if span.kind == "compute":
            computed[span.worker] += 1
        if span.begin < end:
            bars[span.kind].append(_bar_of_worker(span, computed[span.worker]))
    for one in outcome.server_spans:
        if one.begin < end:
            bars[one.kind].append(_bar_of_server(one, workers))
    for kind, (_, like) in KINDS.items():
        chart.bars(kind, bars[kind], STYLES[like], width=_PUSH if kind == "push" else _WORK)
    return chart


def _bar_of_worker(span: Span, version: int) -> Bar:
    """Return the bar of a worker's span; ``version`` is that of the current or last computed gradient."""
    what = "" if span.kind == "wait" else f" gradient {version}"
    text = str(version) if span.kind == "compute" else ""
    return _bar(span, span.worker, f"worker {span.worker} {KINDS[span.kind][0]}{what}", text)


def _bar_of_server(span: ServerSpan, workers: int) -> Bar:
    """Return the bar of a server's span; an update shows the number of the gradient's worker."""
    what = "the gradient of" if span.kind == "update" else "a row to"
    hint = f"server {span.shard} {KINDS[span.kind][0]} {what} worker {span.worker}"
    return _bar(span, workers + span.shard, hint, str(span.worker) if span.kind == "update" else "")


def _bar(span: Span | ServerSpan, row: int, what: str, text: str) -> Bar:
    place = row + (_WORK / 2 if span.kind == "push" else -_PUSH / 2)
    unit = Unit.of(span.end)
    hint = f"{what}: {unit(span.begin)} to {unit(span.end)}"
    return Bar(place, span.end - span.begin, hint, span.begin, text)


def beside_chart(runs: Mapping[str, Sequence[Point]], x: Axis, y: Axis) -> Chart:
    """Return a chart of one value of several runs; ``runs`` by name."""
    chart = Chart(f"{y.label} over {x.label}, beside one another", x, y)
    for number, (name, points) in enumerate(runs.items()):
        chart.line(name, points, Style(step_colour(number)))
    return chart


def staleness_chart(histogram: Mapping[int, int], mean: float) -> Chart:
    """Return the histogram of gradients by staleness; the mean is marked."""
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
