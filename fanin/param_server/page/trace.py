"""Timeline of ``fanin ps train``: activity of workers, each gradient's path through each server, packets."""

from __future__ import annotations

import math

from fanin.report.links import Frame, add_links, decode_log
from fanin.report.perfetto import Trace
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.sim.param_server.training import Outcome
from fanin.wire.rdma import ACK_SYNDROME, Opcode, read_headers

#: Kinds of a worker's spans.
_WORKER_ACTIVITIES = ("compute", "push", "wait")
#: Kinds of a server's spans, on the event model, and their descriptions.
_SERVER_ACTIVITIES = {"update": "update for worker", "push": "row to worker"}
_NS = 1e9  # nanoseconds per second
#: Header fields without use to readers.
_HIDDEN_FIELDS = ("solicited", "migration", "version", "partition", "congestion", "reserved")


def param_server_trace(outcome: Outcome | None, log: LinkLog, *, workers: int, servers: int) -> str:
    """Return the trace of a run; of a failed run (no outcome) only the links' traffic until then.

    Runs on the event model have no packets.
    """
    trace = Trace()
    names = [f"worker {number}" for number in range(workers)] + [
        f"server {number}" for number in range(servers)
    ]
    for name in names:
        trace.declare(name, _WORKER_ACTIVITIES)
    if outcome:
        _add_workers(trace, outcome)
        _add_servers(trace, outcome)
    add_links(trace, decode_log(log, packet), names, log.left_out)
    return trace.text()


def _add_workers(trace: Trace, outcome: Outcome) -> None:
    """Add the workers' computing, pushing and waiting."""
    for span in trace.first(
        "spans of workers", sorted(outcome.spans, key=lambda span: (span.begin, span.worker))
    ):
        begin, end = ((outcome.start + time) * _NS for time in (span.begin, span.end))
        trace.slice(f"worker {span.worker}", span.kind, span.kind, begin, end)


def _add_servers(trace: Trace, outcome: Outcome) -> None:
    """Add each gradient's time until its update, and then until the row with it arrives at its worker.

    A row that never arrived has no slice. The event model records the servers' activity, but not single
    gradients.
    """
    if not outcome.updates:
        for span in trace.first("spans of servers", outcome.server_spans):
            begin, end = (time * _NS for time in (span.begin, span.end))
            trace.slice(
                f"server {span.shard}", f"{_SERVER_ACTIVITIES[span.kind]} {span.worker}", span.kind, begin, end
            )
        return
    for update in trace.first("updates", sorted(outcome.updates, key=lambda update: update.arrival)):
        server, name = f"server {update.shard}", f"gradient {update.version}"
        arrival, stored, received = (
            (outcome.start + time) * _NS for time in (update.arrival, update.stored, update.received)
        )
        trace.slice(server, f"update for worker {update.worker}", name, arrival, stored)
        if not math.isnan(received):
            trace.slice(server, f"row to worker {update.worker}", name, stored, received)


def packet(logged: LoggedFrame) -> Frame | None:
    """Decode a RoCEv2 packet: part of a write, or an acknowledgement; None for other frames."""
    header = read_headers(logged.head)
    if header is None:
        return None
    opcode = Opcode(header["opcode"])
    fields = {name: value for name, value in header.items() if name not in ("opcode", *_HIDDEN_FIELDS)}
    if opcode is Opcode.ACKNOWLEDGE:
        kind = "ACK" if header["syndrome"] == ACK_SYNDROME else "NAK"
        return Frame(kind, fields)
    return Frame(opcode.name, fields, (logged.destination, header["queue_pair"]), header["psn"])
