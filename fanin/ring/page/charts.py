"""The charts of a training over the ring: figure 3b's trace, and where an iteration's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STYLES
from fanin.report.unit import Unit
from fanin.sim.ring.schedule import Span, Times

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
#: What has the colour of a kind or a part, where that has another name in STYLES.
_LIKE = {
    "F": "forward",
    "B": "backward",
    "U": "update",
    "AR": "communication",
    "exposed": "communication",
    "communicate": "communication",
    "posting": "overhead",
}
_NIC = "AR"  # the kind that is not the worker's


def trace_chart(times: Sequence[Times], adder: str) -> Chart:
    """What the workers of the first nodes, and their NICs, do in the first steps.

    A NIC takes one all-reduce after the other: a bar begins with its post, or where the one before ends.
    ``adder`` is what the rows of the all-reduces are called.
    """
    shown = [_in_order(each.spans) for each in times[:NODES]]
    end = max(span.end for spans in shown for span in spans)
    chart = Chart(
        "Timeline of workers and their NICs",
        Axis.seconds("simulated time", high=end),
        rows=[f"{who} {node}" for node in range(len(shown)) for who in ("worker", adder)],
        bars="overlay",
    )
    for kind, name in KINDS.items():
        bars = [
            _bar(span, node, Unit.of(end))
            for node, spans in enumerate(shown)
            for span in spans
            if span.kind == kind
        ]
        chart.bars(f"{name} ({kind})", bars, STYLES[_LIKE[kind]], width=0.84)
    return chart


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """By their beginnings; an all-reduce waits in the queue until the one before has ended."""
    found, free = [], 0.0
    for span in sorted(spans, key=lambda span: (span.begin, span.end)):
        begin = span.begin
        if span.kind == _NIC:
            begin, free = max(begin, free), max(span.end, free)
        found.append(Span(span.step, span.kind, span.layer, min(begin, span.end), span.end))
    return found


def _bar(span: Span, node: int, unit: Unit) -> Bar:
    times = f"{unit(span.begin)} to {unit(span.end)}"
    hint = f"node {node}, step {span.step}: {KINDS[span.kind]} of layer {span.layer}: {times}"
    row = 2 * node + (span.kind == _NIC)
    return Bar(row, span.end - span.begin, hint, span.begin, f"{span.kind}{span.layer}")


def split_chart(iteration: Mapping[str, float]) -> Chart:
    """An iteration's parts, one behind the other."""
    unit = Unit.of(iteration["seconds"])
    parts = {part: iteration[part] for part in PARTS if iteration.get(part, 0.0) > 0}
    whole = sum(parts.values())
    chart = Chart(
        "Where an iteration's time goes",
        Axis.seconds("time of an iteration", high=whole),
        rows=["iteration"],
        row=34,
        bars="stack",
    )
    for part, seconds in parts.items():
        name, share = PARTS[part], f"{100 * seconds / whole:.1f} %"
        bar = Bar(0, seconds, f"{name}: {unit(seconds)}, {share}", text=share)
        chart.bars(name, [bar], STYLES[_LIKE.get(part, part)])
    return chart
