"""Links in a timeline: a track per direction of each link, network faults, and credit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from fanin.job import worker_endpoint
from fanin.report.perfetto import Trace
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.wire.link import LinkFormat, LinkKind

NETWORK = "network"  # process with the tracks of links
RETRANSMISSION = "again"  # suffix of a retransmitted frame's name
_PS_PER_NS = 1000  # picoseconds per nanosecond


class Frame(NamedTuple):
    """Description of a frame in a timeline: its kind, and facts by name.

    - ``stream``: identifies frames of its node that are numbered together.
    - ``number``: number within the stream, the same for retransmissions; None for frames that are not repeated.
    """

    kind: str
    facts: dict[str, Any]
    stream: Hashable = None
    number: int | None = None


class TracedFrame(NamedTuple):
    """Decoded frame of a link's log. ``is_retransmission``: its number was sent before."""

    logged: LoggedFrame
    frame: Frame
    is_retransmission: bool = False

    @property
    def begin_ns(self) -> float:
        """Start of the frame in ns."""
        return self.logged.begin / _PS_PER_NS

    @property
    def end_ns(self) -> float:
        """End of the frame in ns."""
        return self.logged.end / _PS_PER_NS


#: Decoder of the beginning of a frame; returns None for a frame of another system. Called in order of time.
Decode = Callable[[LoggedFrame], Frame | None]


def decode_log(log: LinkLog, decode: Decode) -> list[TracedFrame]:
    """Return the frames of a log that ``decode`` recognises, in order of time."""
    keys: set[tuple[int, Hashable, int]] = set()
    frames = []
    for logged in sorted(log.frames, key=lambda entry: entry.begin):
        frame = decode(logged)
        if frame is None:
            continue
        if not logged.up or frame.number is None:
            frames.append(TracedFrame(logged, frame))
            continue
        key = logged.port, frame.stream, frame.number
        frames.append(TracedFrame(logged, frame, key in keys))
        keys.add(key)
    return frames


def add_links(trace: Trace, sent: Sequence[TracedFrame], nodes: Sequence[str], left_out: int = 0) -> None:
    """Add a slice per frame on its link; ``nodes`` are the names of nodes by port.

    Each slice names its ``peer``, the other end. A fault of the network is an instant at the frame's end.
    """
    names_by_mac = {worker_endpoint(number).mac: name for number, name in enumerate(nodes)}
    for sent_frame in trace.first("frames", sent, left_out):
        logged, frame = sent_frame.logged, sent_frame.frame
        peer = names_by_mac.get(logged.destination if logged.up else logged.source)
        track = f"{'from' if logged.up else 'to'} {nodes[logged.port]}"
        name = f"{frame.kind} {RETRANSMISSION}" if sent_frame.is_retransmission else frame.kind
        facts = {"peer": peer, "bytes": logged.size} | frame.facts
        trace.slice(NETWORK, track, name, sent_frame.begin_ns, sent_frame.end_ns, **facts)
        for fault in logged.faults:
            trace.instant(NETWORK, track, fault, sent_frame.end_ns, frame=name)


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


def add_credit(trace: Trace, sent: Iterable[TracedFrame], nodes: Sequence[str]) -> None:
    """Add a counter of new frames that each end of a reliable link may send.

    Answers and new frames change it. Each connection of a node has its own counter.
    """
    limits: dict[tuple[int, Hashable], int] = {}
    unsent: dict[tuple[int, Hashable], int] = {}
    for sent_frame in sorted(sent, key=lambda sent_frame: sent_frame.logged.end):
        logged, facts = sent_frame.logged, sent_frame.frame.facts
        end = logged.port, sent_frame.frame.stream
        if logged.up and sent_frame.frame.number is not None and not sent_frame.is_retransmission:
            unsent[end] = sent_frame.frame.number + 1
        elif not logged.up and "limit" in facts and not (logged.dropped or logged.corrupted):
            limits[end] = max(limits.get(end, 0), facts["limit"])
        else:
            continue
        owner = f"{nodes[logged.port]}, connection {facts['connection']}" if "connection" in facts else ""
        credit = limits.get(end, 0) - unsent.get(end, 0)
        trace.counter(NETWORK, f"credit of {owner or nodes[logged.port]}", sent_frame.end_ns, credit)
