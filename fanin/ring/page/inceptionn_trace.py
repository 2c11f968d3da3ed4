"""Timeline of ``fanin ring train --system inceptionn``: hosts' work and waits, and TCP segments."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.codec.facts import TOS_COMPRESSIBLE
from fanin.inceptionn.facts import Leg
from fanin.report.links import Frame, add_links, decode_log
from fanin.report.perfetto import Trace
from fanin.sim.inceptionn.host import Activity, Span
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.sim.spans import FirstSpans
from fanin.wire.tcp import read_headers

_TRACKS = {
    Activity.STEP: "steps",
    Activity.WORK: "host works",
    Activity.WAIT: "host waits for",
    Activity.PHASE: "phases",
}
_LEG_OF_PORT = {leg.port: leg for leg in Leg}
_NS = 1 / 1000  # nanoseconds per picosecond


def inceptionn_trace(timelines: Sequence[FirstSpans[Span]], log: LinkLog, *, nodes: int) -> str:
    """Return the trace of a run of ``nodes`` nodes; ``timelines`` are the hosts', empty for a failed run."""
    trace, names = Trace(), [f"node {node}" for node in range(nodes)]
    for name in names:
        trace.declare(name, _TRACKS.values())
    spans = [(span, name) for name, timeline in zip(names, timelines, strict=False) for span in timeline.kept]
    left_out = sum(timeline.left_out for timeline in timelines)
    for span, name in trace.first(
        "spans of hosts", sorted(spans, key=lambda span_and_name: span_and_name[0].begin), left_out
    ):
        trace.slice(name, _TRACKS[span.activity], span.name, span.begin * _NS, span.end * _NS)
    add_links(trace, decode_log(log, segment), names, log.left_out)
    return trace.text()


def segment(logged: LoggedFrame) -> Frame | None:
    """Decode a TCP segment of a leg, with payload or as acknowledgement; None for other frames."""
    header = read_headers(logged.head)
    leg = header and _LEG_OF_PORT.get(header["destination_port"])
    if not header or not leg:
        return None
    names = ("sequence", "acknowledgement", "payload")
    facts = {"leg": leg.label} | {name: header[name] for name in names}
    stream = logged.destination, leg
    if not header["payload"]:
        return Frame("ACK", facts, stream)
    facts["compressed"] = header["tos"] == TOS_COMPRESSIBLE
    return Frame("segment", facts, stream, header["sequence"])
