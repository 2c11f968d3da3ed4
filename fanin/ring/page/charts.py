"""Charts of a training over the ring: figure 3b's trace, and the parts of an iteration's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.report.chart import Axis, Bar, Chart
from fanin.report.palette import STYLES
from fanin.report.unit import Unit
from fanin.sim.ring.schedule import Span, Times

NODES = 4  # most nodes in the trace
KINDS = {"F": "forward", "B": "backward", "U": "update", "AR": "all-reduce"}
#: Parts of an iteration; each system has some of them.
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
#: Entry of STYLES that colours a kind or part, if its name differs.
_STYLE_OF = {
    "F": "forward",
    "B": "backward",
    "U": "update",
    "AR": "communication",
    "exposed": "communication",
    "communicate": "communication",
    "posting": "overhead",
}
_NIC = "AR"  # kind of spans of the NIC; all others belong to the worker


def trace_chart(times: Sequence[Times], adder: str) -> Chart:
    """Return the timeline of the first nodes' workers and NICs in the first steps.

    A NIC runs one all-reduce at a time: a bar starts at its post or at the end of the previous one.
    ``adder`` is the label of the all-reduces' rows.
    """
    spans_by_node = [_in_order(host_times.spans) for host_times in times[:NODES]]
    end = max(span.end for spans in spans_by_node for span in spans)
    chart = Chart(
        "Timeline of workers and their NICs",
        Axis.seconds("simulated time", high=end),
        rows=[f"{row} {node}" for node in range(len(spans_by_node)) for row in ("worker", adder)],
        bars="overlay",
    )
    for kind, name in KINDS.items():
        bars = [
            _bar(span, node, Unit.of(end))
            for node, spans in enumerate(spans_by_node)
            for span in spans
            if span.kind == kind
        ]
        chart.bars(f"{name} ({kind})", bars, STYLES[_STYLE_OF[kind]], width=0.84)
    return chart


def _in_order(spans: Sequence[Span]) -> list[Span]:
    """Sort spans by start; an all-reduce starts no earlier than the previous one's end."""
    ordered, free = [], 0.0
    for span in sorted(spans, key=lambda span: (span.begin, span.end)):
        begin = span.begin
        if span.kind == _NIC:
            begin, free = max(begin, free), max(span.end, free)
        ordered.append(Span(span.step, span.kind, span.layer, min(begin, span.end), span.end))
    return ordered


def _bar(span: Span, node: int, unit: Unit) -> Bar:
    times = f"{unit(span.begin)} to {unit(span.end)}"
    hint = f"node {node}, step {span.step}: {KINDS[span.kind]} of layer {span.layer}: {times}"
    row = 2 * node + (span.kind == _NIC)
    return Bar(row, span.end - span.begin, hint, span.begin, f"{span.kind}{span.layer}")


def split_chart(iteration: Mapping[str, float]) -> Chart:
    """Return one bar with the parts of an iteration in order."""
    unit = Unit.of(iteration["seconds"])
    parts = {part: iteration[part] for part in PARTS if iteration.get(part, 0.0) > 0}
    total = sum(parts.values())
    chart = Chart(
        "Where an iteration's time goes",
        Axis.seconds("time of an iteration", high=total),
        rows=["iteration"],
        row=34,
        bars="stack",
    )
    for part, seconds in parts.items():
        name, share = PARTS[part], f"{100 * seconds / total:.1f} %"
        bar = Bar(0, seconds, f"{name}: {unit(seconds)}, {share}", text=share)
        chart.bars(name, [bar], STYLES[_STYLE_OF.get(part, part)])
    return chart
