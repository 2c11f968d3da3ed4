"""The charts of a training over the ring: figure 3b's trace, and where an iteration's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.report.svg import Axis, Canvas
from fanin.report.unit import Unit
from fanin.sim.ring.schedule import Span, Times

WIDTH, LEFT, RIGHT = 960.0, 118.0, 944.0
NODES = 4  # of the trace, at most
KINDS = {"F": "forward", "B": "backward", "U": "update", "AR": "all-reduce"}
#: Of an iteration; each system has some of them.
PARTS = {
    "forward": "forward",
    "backward": "backward",
    "compute": "forward and backward",
    "exposed": "all-reduce exposed",
    "communicate": "communication",
    "sum": "sums",
    "update": "update",
    "posting": "descriptors and status",
}
_NIC = "AR"  # the kind that is not the worker's
_LANE, _GAP = 20.0, 9.0
_LETTER = 6.5  # width of a letter in a bar


def trace_chart(times: Sequence[Times], adder: str) -> str:
    """What the workers of the first nodes, and their NICs, do in the first steps.

    A NIC takes one all-reduce after the other: a bar begins with its post, or where the one before ends.
    ``adder`` is what the lanes of the all-reduces are called.
    """
    shown = [_in_order(each.spans) for each in times[:NODES]]
    end = max(span.end for spans in shown for span in spans)
    unit, top = Unit.of(end), 10.0
    height = 2 * _LANE + _GAP
    bottom = top + height * len(shown)
    canvas = Canvas(WIDTH, bottom + 44, "Timeline of workers and their NICs")
    x = Axis(0, end, LEFT, RIGHT)
    canvas.x_axis(Axis(0, end / unit.seconds, LEFT, RIGHT), bottom, f"simulated time, {unit.name}", top=top)
    for node, spans in enumerate(shown):
        y = top + height * node
        for lane, name in enumerate((f"worker {node}", f"{adder} {node}")):
            canvas.text(LEFT - 8, y + _LANE * lane + 15, name, anchor="end")
        for span in spans:
            _bar(canvas, x, y + _LANE * (span.kind == _NIC), span, node, unit)
    return canvas.svg()


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """By their beginnings; an all-reduce waits in the queue until the one before has ended."""
    found, free = [], 0.0
    for span in sorted(spans, key=lambda span: (span.begin, span.end)):
        begin = span.begin
        if span.kind == _NIC:
            begin, free = max(begin, free), max(span.end, free)
        found.append(Span(span.step, span.kind, span.layer, min(begin, span.end), span.end))
    return found


def _bar(canvas: Canvas, x: Axis, y: float, span: Span, node: int, unit: Unit) -> None:
    left, width = x(span.begin), x(span.end) - x(span.begin)
    times = f"{unit(span.begin)} to {unit(span.end)}"
    title = f"node {node}, step {span.step}: {KINDS[span.kind]} of layer {span.layer}: {times}"
    canvas.rect(left, y + 1, max(width, 0.6), _LANE - 3, f"bar ring-{span.kind}", title)
    text = f"{span.kind}{span.layer}"
    if width > _LETTER * len(text) + 3:
        canvas.text(left + width / 2, y + _LANE / 2 + 3, text, "inside", "middle")


def split_chart(iteration: Mapping[str, float]) -> str:
    """An iteration's parts, one behind the other, as shares of it."""
    unit = Unit.of(iteration["seconds"])
    canvas = Canvas(WIDTH, 84, "Where an iteration's time goes")
    whole = sum(iteration.get(part, 0.0) for part in PARTS)
    x = Axis(0, whole, 16, RIGHT)
    canvas.x_axis(Axis(0, whole / unit.seconds, 16, RIGHT), 40, f"time of an iteration, {unit.name}", top=6)
    begin = 0.0
    for part, name in PARTS.items():
        seconds = iteration.get(part, 0.0)
        if seconds <= 0:
            continue
        left, width = x(begin), x(begin + seconds) - x(begin)
        share = f"{100 * seconds / whole:.1f} %"
        canvas.rect(left, 10, width, 26, f"bar ring-part-{part}", f"{name}: {unit(seconds)}, {share}")
        if width > _LETTER * len(share) + 6:
            canvas.text(left + width / 2, 27, share, "inside", "middle")
        begin += seconds
    return canvas.svg()
