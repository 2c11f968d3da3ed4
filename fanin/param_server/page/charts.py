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
    return median(sorted(worker_ends)[:WINDOW][-1] for worker_ends in ends.values())


def timeline_chart(outcome: Outcome, workers: int, servers: int, end: float, name: str = "Timeline") -> Chart:
    """Return the timeline of every worker and server until ``end``: computing, updating, waiting; pushes below.

    With several slots a worker pushes one gradient while it computes the next.
    """
    numbers = {"worker": range(workers), "server": range(servers)}
    rows = [f"{role} {number}" for role, role_numbers in numbers.items() for number in role_numbers]
    chart = Chart(name, Axis.seconds("simulated time", high=end), rows=rows, bars="overlay")
    bars: dict[str, list[Bar]] = {kind: [] for kind in KINDS}
    computed = [0] * workers
    for span in sorted(outcome.spans, key=lambda span: span.begin):
        if span.kind == "compute":
            computed[span.worker] += 1
        if span.begin < end:
            bars[span.kind].append(_bar_of_worker(span, computed[span.worker]))
    for server_span in outcome.server_spans:
        if server_span.begin < end:
            bars[server_span.kind].append(_bar_of_server(server_span, workers))
    for kind, (_, style) in KINDS.items():
        chart.bars(kind, bars[kind], STYLES[style], width=_PUSH if kind == "push" else _WORK)
    return chart


def _bar_of_worker(span: Span, version: int) -> Bar:
    """Return the bar of a worker's span; ``version`` is that of the current or last computed gradient."""
    gradient = "" if span.kind == "wait" else f" gradient {version}"
    text = str(version) if span.kind == "compute" else ""
    return _bar(span, span.worker, f"worker {span.worker} {KINDS[span.kind][0]}{gradient}", text)


def _bar_of_server(span: ServerSpan, workers: int) -> Bar:
    """Return the bar of a server's span; an update shows the number of the gradient's worker."""
    target = "the gradient of" if span.kind == "update" else "a row to"
    hint = f"server {span.shard} {KINDS[span.kind][0]} {target} worker {span.worker}"
    return _bar(span, workers + span.shard, hint, str(span.worker) if span.kind == "update" else "")


def _bar(span: Span | ServerSpan, row: int, activity: str, text: str) -> Bar:
    height = row + (_WORK / 2 if span.kind == "push" else -_PUSH / 2)
    unit = Unit.of(span.end)
    hint = f"{activity}: {unit(span.begin)} to {unit(span.end)}"
    return Bar(height, span.end - span.begin, hint, span.begin, text)


def beside_chart(runs: Mapping[str, Sequence[Point]], x: Axis, y: Axis) -> Chart:
    """Return a chart of one value of several runs; ``runs`` by name."""
    chart = Chart(f"{y.label} over {x.label}, beside one another", x, y)
    for number, (name, points) in enumerate(runs.items()):
        chart.line(name, points, Style(step_colour(number)))
    return chart


def staleness_chart(histogram: Mapping[int, int], mean: float) -> Chart:
    """Return the histogram of gradients by staleness; the mean is marked."""
    largest = max(histogram)
    step = -(-(largest + 1) // BARS)
    counts: dict[int, int] = {}
    for staleness, count in histogram.items():
        counts[staleness // step] = counts.get(staleness // step, 0) + count
    chart = Chart(
        "Histogram of staleness",
        Axis.count(
            "updates by others that the gradient's model had not had",
            largest,
            ends=(-0.5, max(largest, 9) + 0.5),
        ),
        Axis.count("gradients", max(counts.values())),
        height=280,
    )
    bars = []
    for group, count in sorted(counts.items()):
        first, last = group * step, (group + 1) * step - 1
        label = f"{first}" if step == 1 else f"{first} to {last}"
        bars.append(Bar((first + last) / 2, count, f"{label}: {count:,}"))
    chart.bars("gradients", bars, STYLES["run"], width=0.9 * step)
    chart.mark(mean, f"mean {mean:.2f}")
    return chart
