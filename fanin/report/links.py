"""Links in a timeline: a track for each direction of each link, what the network does to frames, and credit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from fanin.job import worker_endpoint
from fanin.report.perfetto import Trace
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.wire.link import LinkFormat, LinkKind

NETWORK = "network"  # the process that has links' tracks
AGAIN = "again"  # ends the name of a frame that its node has sent before
_PS = 1000  # in a nanosecond


class Frame(NamedTuple):
    """What a timeline says of a frame: its kind, and facts by name.

    ``stream``: of its node's frames, those that are numbered together; ``number``: its own among them, which it
    has in common with those that repeat it, or None where nothing repeats it.
    """

    kind: str
    facts: dict[str, Any]
    stream: Hashable = None
    number: int | None = None


class Sent(NamedTuple):
    """A frame on a link, decoded. ``again``: its node has sent it before."""

    logged: LoggedFrame
    frame: Frame
    again: bool = False

    @property
    def begin_ns(self) -> float:
        """When it begins."""
        return self.logged.begin / _PS

    @property
    def end_ns(self) -> float:
        """When it has passed."""
        return self.logged.end / _PS


#: What a frame is, by its beginning; None for one that is not the system's. Is called in order of time.
Decode = Callable[[LoggedFrame], Frame | None]


def decoded(log: LinkLog, decode: Decode) -> list[Sent]:
    """The frames of a log that are the system's, in order of time. Foreign ones are left out."""
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
    """A slice for each frame on its link; ``nodes`` are the names of those at the ports.

    Each says its ``peer``: who is at the other end of its way. What the network does to a frame is an instant
    at its end.
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
    """A frame of a reliable link: DATA with what its user says of it, an answer with its limit.

    Its stream is its job's.
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
    """How many new frames each end of a reliable link may send: a counter that answers and new frames change.

    Of a node's several connections each has its own.
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
