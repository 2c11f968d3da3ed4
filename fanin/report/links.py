"""Links in a timeline: a track per direction of each link, network faults, and credit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from fanin.job import worker_endpoint
from fanin.report.perfetto import Trace
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.wire.link import LinkFormat, LinkKind

NETWORK = "network"  # process with the tracks of links
AGAIN = "again"  # suffix of a retransmitted frame's name
_PS = 1000  # picoseconds per nanosecond


class Frame(NamedTuple):
    """Description of a frame in a timeline: its kind, and facts by name.

    - ``stream``: identifies frames of its node that are numbered together.
    - ``number``: number within the stream, the same for retransmissions; None for frames that are not repeated.
    """

    kind: str
    facts: dict[str, Any]
    stream: Hashable = None
    number: int | None = None


class Sent(NamedTuple):
    """A decoded frame on a link. ``again``: it is a retransmission."""

    logged: LoggedFrame
    frame: Frame
    again: bool = False

    @property
    def begin_ns(self) -> float:
        """Start of the frame in ns."""
        return self.logged.begin / _PS

    @property
    def end_ns(self) -> float:
        """End of the frame in ns."""
        return self.logged.end / _PS


#: Decodes the beginning of a frame; None for a frame of another system. Is called in order of time.
Decode = Callable[[LoggedFrame], Frame | None]


def decoded(log: LinkLog, decode: Decode) -> list[Sent]:
    """Return the frames of a log that belong to the system, in order of time."""
    seen: set[tuple[int, Hashable, int]] = set()
    found = []
    for logged in sorted(log.frames, key=lambda one: one.begin):
        frame = decode(logged)
        if frame is None:
            continue
        if not logged.up or frame.number is None:
            found.append(Sent(logged, frame))
            continue
        key = logged.port, frame.stream, frame.number
        found.append(Sent(logged, frame, key in seen))
        seen.add(key)
    return found


def add_links(trace: Trace, sent: Sequence[Sent], nodes: Sequence[str], left_out: int = 0) -> None:
    """Add a slice per frame on its link; ``nodes`` are the names of nodes by port.

    Each slice names its ``peer``, the other end. A fault of the network is an instant at the frame's end.
    """
    named = {worker_endpoint(number).mac: name for number, name in enumerate(nodes)}
    for one in trace.first("frames", sent, left_out):
        logged, frame = one.logged, one.frame
        peer = named.get(logged.destination if logged.up else logged.source)
        track = f"{'from' if logged.up else 'to'} {nodes[logged.port]}"
        name = f"{frame.kind} {AGAIN}" if one.again else frame.kind
        facts = {"peer": peer, "bytes": logged.size} | frame.facts
        trace.slice(NETWORK, track, name, one.begin_ns, one.end_ns, **facts)
        for fault in logged.faults:
            trace.instant(NETWORK, track, fault, one.end_ns, frame=name)


def link_frame(form: LinkFormat, head: bytes) -> Frame | None:
    """Decode a frame of a reliable link: DATA with its user's fields, or an answer with its limit.

    The job is the frame's stream.
    """
    header = form.read_header(head)
    if header is None:
        return None
    kind, sequence = LinkKind(header["kind"]), header["sequence"]
    facts = {name: header[name] for name in form.job} | {"sequence": sequence}
    if kind is LinkKind.DATA:
        facts |= {name: header[name] for name in form.data}
    elif kind is not LinkKind.PROBE:
        facts["limit"] = header[form.limit]
    stream = tuple(header[name] for name in form.job)
    return Frame(kind.name, facts, stream, sequence if kind is LinkKind.DATA else None)


def add_credit(trace: Trace, sent: Iterable[Sent], nodes: Sequence[str]) -> None:
    """Add a counter of new frames that each end of a reliable link may send.

    Answers and new frames change it. Each connection of a node has its own counter.
    """
    limits: dict[tuple[int, Hashable], int] = {}
    unsent: dict[tuple[int, Hashable], int] = {}
    for one in sorted(sent, key=lambda one: one.logged.end):
        logged, facts = one.logged, one.frame.facts
        end = logged.port, one.frame.stream
        if logged.up and one.frame.number is not None and not one.again:
            unsent[end] = one.frame.number + 1
        elif not logged.up and "limit" in facts and not (logged.dropped or logged.corrupted):
            limits[end] = max(limits.get(end, 0), facts["limit"])
        else:
            continue
        of = f"{nodes[logged.port]}, connection {facts['connection']}" if "connection" in facts else ""
        credit = limits.get(end, 0) - unsent.get(end, 0)
        trace.counter(NETWORK, f"credit of {of or nodes[logged.port]}", one.end_ns, credit)
