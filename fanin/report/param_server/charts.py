"""The charts of a run with the parameter server, each from numbers to SVG (RDMA-wild, figures 5 to 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fanin.report.svg import Axis, Canvas, number
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Span

WIDTH, LEFT, RIGHT = 960.0, 64.0, 944.0
KINDS = {"compute": "computes", "push": "pushes", "wait": "waits"}
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


def workers_chart(spans: Sequence[Span], workers: int) -> str:
    """What every worker does in the ``window``: computing and waiting, and below them pushing.

    With several slots a worker pushes one gradient while it computes the next.
    """
    end = window(spans)
    unit = Unit.of(end)
    row, top = 22.0, 10.0
    canvas = Canvas(WIDTH, top + row * workers + 44, "Timeline of the workers")
    x = Axis(0, end, LEFT + 26, RIGHT)
    bottom = top + row * workers
    scaled = Axis(0, end / unit.seconds, x.start, x.stop)
    canvas.x_axis(scaled, bottom, f"simulated time, {unit.name}", top=top, count=10)
    for worker in range(workers):
        canvas.text(x.start - 8, top + row * (worker + 0.5) + 3, f"worker {worker}", anchor="end")
    computed = [0] * workers
    for span in sorted(spans, key=lambda span: span.begin):
        if span.kind == "compute":
            computed[span.worker] += 1
        if span.begin < end:
            _bar(canvas, x, top + row * span.worker, row, span, computed[span.worker])
    return canvas.svg()


def _bar(canvas: Canvas, x: Axis, y: float, row: float, span: Span, version: int) -> None:
    """``version``: of the gradient that is computed, or that was computed last."""
    push = row * 0.24
    top, height = (y + row - 2 - push, push) if span.kind == "push" else (y + 2, row - 5 - push)
    left, width = x(span.begin), x(span.end) - x(span.begin)
    unit = Unit.of(span.end)
    times = f"{unit(span.begin)} to {unit(span.end)}"
    what = "" if span.kind == "wait" else f" gradient {version}"
    title = f"worker {span.worker} {KINDS[span.kind]}{what}: {times}"
    canvas.rect(left, top, max(width, 1.0), height, f"bar did-{span.kind}", title)
    if span.kind == "compute" and width > 7 * len(str(version)) + 6:
        canvas.text(left + width / 2, top + height / 2 + 3.6, str(version), "inside", "middle")


def staleness_chart(histogram: Mapping[int, int], mean: float) -> str:
    """How many gradients were so many updates old; the mean is marked."""
    top, bottom = 34.0, 216.0
    canvas = Canvas(WIDTH, 262, "Histogram of staleness")
    step = -(-(max(histogram) + 1) // BARS)
    counts: dict[int, int] = {}
    for age, times in histogram.items():
        counts[age // step] = counts.get(age // step, 0) + times
    highest = max(counts.values())
    x = Axis(-0.5, max(max(histogram), 9) + 0.5, LEFT, RIGHT)
    y = Axis(0, 1.1 * highest, bottom, top)
    canvas.y_axis(y, LEFT, "gradients", right=RIGHT, count=min(5, highest))
    canvas.x_axis(x, bottom, "updates by others that the gradient's model had not had", count=10)
    for place, times in counts.items():
        first, last = place * step, (place + 1) * step - 1
        ages = f"{first}" if step == 1 else f"{first} to {last}"
        start, stop = x(first - 0.5), x(last + 0.5)
        canvas.rect(
            start + 0.75, y(times), stop - start - 1.5, bottom - y(times), "bar part0", f"{ages}: {times:,}"
        )
    canvas.line((x(mean), top - 8), (x(mean), bottom), "mark", f"mean: {mean:.2f}")
    aside, anchor = (5, "start") if x(mean) < 0.9 * WIDTH else (-5, "end")
    canvas.text(x(mean) + aside, top - 2, f"mean {number(round(mean, 1))}", anchor=anchor)
    return canvas.svg()
