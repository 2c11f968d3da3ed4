"""The charts of a run's report, each a function from numbers to SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.report.svg import Axis, Canvas, number

WIDTH = 960.0
LEFT, RIGHT = 64.0, 944.0


@dataclass(frozen=True)
class Span:
    """A stage of a micro-batch at work, from ``start`` to ``end`` (exclusive), in cycles.

    ``stage`` is F (words accepted by forward), C (AGG sent to FA received) or B (words taken by backward).
    """

    node: int
    stage: str
    mini_batch: int
    micro_batch: int
    start: int
    end: int


STAGES = {"F": "forward", "C": "communication", "B": "backward"}


def loss_chart(losses: Mapping[str, Sequence[float]]) -> str:
    """Loss per epoch, a line per series; the first of the mapping lies on top."""
    top, bottom = 34.0, 290.0
    canvas = Canvas(WIDTH, 336, "Loss per epoch")
    epochs = max(map(len, losses.values()))
    values = [value for series in losses.values() for value in series]
    low, high = min(values), max(values)
    x = Axis(1, epochs, LEFT, RIGHT)
    y = Axis(0 if low < high / 2 else low - (high - low) / 10, high * 1.04, bottom, top)
    canvas.y_axis(y, LEFT, "loss", right=RIGHT)
    canvas.x_axis(x, bottom, "epoch", count=min(epochs, 12))
    for index, (name, series) in reversed(list(enumerate(losses.items()))):
        points = [(x(epoch), y(value)) for epoch, value in enumerate(series, start=1)]
        canvas.polyline(points, f"series line{index}", name)
        for epoch, (point, value) in enumerate(zip(points, series, strict=True), start=1):
            canvas.circle(
                point, 3.0 if index == 0 else 5.0, f"dot dot{index}", f"{name}, epoch {epoch}: {value:.6f}"
            )
    return canvas.svg()


def _stack(spans: Sequence[Span]) -> list[list[Span]]:
    """Rows in which no two spans overlap, as few as there are spans at once."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return rows


def timeline_chart(spans: Sequence[Span], cycle_ns: float) -> str:
    """Forward, communication and backward of every micro-batch, a lane per stage and node, in cycles."""
    row_height, gap, top = 18.0, 10.0, 16.0
    lanes = [
        (node, stage, _stack([s for s in spans if s.node == node and s.stage == stage]))
        for node in sorted({s.node for s in spans})
        for stage in STAGES
    ]
    height = sum(len(rows) * row_height + gap for *_, rows in lanes)
    canvas = Canvas(WIDTH, top + height + 44, "Timeline of micro-batches")
    x = Axis(min(s.start for s in spans), max(s.end for s in spans), 112, RIGHT)
    canvas.x_axis(x, top + height, f"cycles since start (1 cycle = {number(cycle_ns)} ns)", top=top, count=10)
    y = top
    for node, stage, rows in lanes:
        if stage == "F":
            canvas.text(4, y + 13, f"node {node}", "label")
        canvas.text(104, y + len(rows) * row_height / 2 + 4, stage, "lane", "end")
        for index, row in enumerate(rows):
            for span in row:
                _bar(canvas, x, y + index * row_height, row_height - 3, span)
        y += len(rows) * row_height + gap
    return canvas.svg()


def _bar(canvas: Canvas, x: Axis, y: float, height: float, span: Span) -> None:
    left, width = x(span.start), x(span.end) - x(span.start)
    name = f"{span.mini_batch + 1}.{span.micro_batch + 1}"
    title = (
        f"{STAGES[span.stage]} of micro-batch {span.micro_batch + 1} of mini-batch {span.mini_batch + 1}: "
        f"cycles {span.start:,} to {span.end:,} ({span.end - span.start:,})"
    )
    canvas.rect(left, y, max(width, 1.5), height, f"bar stage{span.stage} parity{span.mini_batch % 2}", title)
    if width > 6.2 * len(name) + 4:
        canvas.text(left + width / 2, y + height / 2 + 3.6, name, "inside", "middle")


def histogram_chart(values: Sequence[float], marks: Mapping[str, float], unit: str) -> str:
    """How often each value occurs; ``marks`` are named values. The counts are logarithmic."""
    top, bottom, bins = 40.0, 230.0, 60
    canvas = Canvas(WIDTH, 276, "Histogram of AllReduce latency")
    low, high = min(values), max(values)
    margin = max((high - low) * 0.03, low * 0.02, 1.0)
    x = Axis(low - margin, high + margin, LEFT, RIGHT)
    width = (x.high - x.low) / bins
    counts = [0] * bins
    for value in values:
        counts[min(int((value - x.low) / width), bins - 1)] += 1
    y = Axis(0.7, max(counts) * 1.2, bottom, top, log=True)
    canvas.y_axis(y, LEFT, "operations", right=RIGHT)
    canvas.x_axis(x, bottom, unit)
    for index, count in enumerate(counts):
        if count:
            start, end = x.low + index * width, x.low + (index + 1) * width
            title = f"{number(round(start))} to {number(round(end))} {unit.split()[-1]}: {count:,}"
            canvas.rect(x(start) + 0.5, y(count), x(end) - x(start) - 1, bottom - y(count), "bar stageC", title)
    for level, (name, value) in enumerate(marks.items()):
        canvas.line((x(value), 10 + 13 * level), (x(value), bottom), "mark", f"{name}: {value:,.0f}")
        canvas.text(x(value) + 5, 19 + 13 * level, f"{name} {value:,.0f}", "tick")
    return canvas.svg()


def stall_chart(nodes: Sequence[Mapping[str, int]]) -> str:
    """Where each node's forward cycles went: a bar per node, its parts named by the keys, in their order."""
    row, top = 26.0, 8.0
    canvas = Canvas(WIDTH, top + row * len(nodes) + 44, "Cycles of forward by cause")
    x = Axis(0, 100, LEFT, RIGHT)
    canvas.x_axis(x, top + row * len(nodes), "cycles of forward, %", top=top, count=10)
    for index, causes in enumerate(nodes):
        total, done, y = sum(causes.values()), 0, top + row * index
        canvas.text(LEFT - 8, y + row / 2 + 4, f"node {index}", anchor="end")
        for part, (cause, cycles) in enumerate(causes.items()):
            start, done = done, done + cycles
            left, right = x(100 * start / total), x(100 * done / total)
            title = f"node {index}, {cause}: {cycles:,} cycles ({100 * cycles / total:.2f} %)"
            canvas.rect(left, y + 3, right - left, row - 6, f"bar part{part}", title)
    return canvas.svg()
