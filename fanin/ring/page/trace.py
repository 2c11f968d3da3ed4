"""Timeline of ``fanin ring train`` on smart NICs: steps, hosts' work, all-reduces by phase, frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat

from fanin.report.links import Frame, TracedFrame, add_credit, add_links, decode_log, link_frame
from fanin.report.perfetto import Trace
from fanin.ring.facts import RingConfig
from fanin.ring.page.charts import KINDS
from fanin.sim.link_log import LinkLog, LoggedFrame
from fanin.sim.ring.schedule import Times
from fanin.sim.ring.training import RingTraining
from fanin.wire.ring import RING_LINK

TRACKS = ("steps", "worker", "all-reduces, host", "all-reduces, frames", "phases")  # of a node
STEPS, WORKER, HOST, FRAMES, SEGMENTS = TRACKS
PHASES = ("reduce-scatter", "all-gather")
_NIC = "AR"  # kind of spans of the NIC; all others belong to the worker
_NS = 1e9  # nanoseconds per second


def ring_trace(
    job: RingTraining, times: Sequence[Times], log: LinkLog, *, began: float = 0.0, first_step: int = 0
) -> str:
    """Return the trace of a run from step ``first_step`` on.

    ``times`` are the hosts', in seconds from ``began`` on; empty for a failed run. ``log`` has no frames if the
    run used a model of the NICs' time.
    """
    trace, names = Trace(), [f"node {node}" for node in range(job.nodes)]
    for name in names:
        trace.declare(name, TRACKS)
    _add_hosts(trace, times, names, began * _NS, first_step)
    sent = decode_log(log, _Jobs().frame)
    for node, name in enumerate(names):
        _add_all_reduces(trace, name, _data_of(sent, node), _AllReduces(job, node, first_step))
    add_links(trace, sent, names, log.left_out)
    add_credit(trace, sent, names)
    return trace.text()


def _add_hosts(
    trace: Trace, times: Sequence[Times], names: Sequence[str], began_ns: float, first_step: int
) -> None:
    """Add steps, and the work of workers and NICs in them."""

    def add(name: str, track: str, text: str, begin: float, end: float) -> None:
        trace.slice(name, track, text, began_ns + begin * _NS, began_ns + end * _NS)

    steps = [
        (begin, end, name, step)
        for name, each in zip(names, times, strict=False)
        for step, (begin, end) in enumerate(zip([0.0, *each.steps], each.steps, strict=False))
    ]
    for begin, end, name, step in trace.first("steps", sorted(steps, key=lambda one: one[0])):
        add(name, STEPS, f"step {first_step + step}", begin, end)
    spans = [(span, name) for name, each in zip(names, times, strict=False) for span in each.timeline.kept]
    left_out = sum(each.timeline.left_out for each in times)
    for span, name in trace.first("spans of hosts", sorted(spans, key=lambda one: one[0].begin), left_out):
        track = HOST if span.kind == _NIC else WORKER
        add(name, track, f"{KINDS[span.kind]} {span.layer}", span.begin, span.end)


class _Jobs:
    """Distinguishes jobs that reuse the same number, as groups do after a while.

    A node runs one job at a time. Frames that arrive may be of an earlier job or of the next one.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, list[int]] = {}  # job numbers so far, by port

    def frame(self, logged: LoggedFrame) -> Frame | None:
        """Decode a frame; its stream is the count of its node's jobs so far."""
        found = link_frame(RING_LINK, logged.head)
        if found is None:
            return None
        job, numbers = found.facts["job"], self._numbers.setdefault(logged.port, [])
        if logged.up and job not in numbers[-1:]:
            numbers.append(job)
        before = next((n for n, number in enumerate(reversed(numbers)) if number == job), -1)
        return Frame(found.kind, found.facts, len(numbers) - 1 - before, found.number)


def _data_of(sent: Sequence[TracedFrame], node: int) -> list[TracedFrame]:
    """Return the first transmissions of a node's DATA frames, in the order of its all-reduces."""
    return [
        one
        for one in sent
        if one.logged.up
        and one.logged.port == node
        and one.frame.number is not None
        and not one.is_retransmission
    ]


@dataclass(frozen=True)
class _AllReduces:
    """Names of a node's all-reduces and their numbers of nodes, by index in the run."""

    job: RingTraining
    node: int
    first_step: int

    def describe(self, number: int) -> tuple[str, int]:
        """Return the name of an all-reduce, and its number of nodes."""
        if self.job.groups is None:
            return self._layer(number), self.job.nodes
        own = [
            (f"round {place} ({each.level})", len(ring.members))
            for place, each in enumerate(self.job.groups.plan.rounds)
            for ring in each.rings
            if self.node in ring.members
        ]
        exchange, place = divmod(number, len(own))
        name, members = own[place]
        return f"{self._layer(exchange)}, {name}", members

    def _layer(self, exchange: int) -> str:
        layers = self.job.training.network.layers
        step, place = divmod(exchange, layers)
        return f"layer {layers - 1 - place}, step {self.first_step + step}"


def _add_all_reduces(trace: Trace, name: str, sent: Sequence[TracedFrame], all_reduces: _AllReduces) -> None:
    """Add a slice per all-reduce of a node, and per phase of its segments, for the time in which it sends."""
    operations = groupby(sent, key=lambda one: (one.frame.stream, one.frame.facts["operation"]))
    for number, (_, frames) in enumerate(operations):
        own = list(frames)
        text, nodes = all_reduces.describe(number)
        values = own[0].frame.facts["count"]
        trace.slice(name, FRAMES, text, own[0].begin_ns, own[-1].end_ns, values=values)
        order = zip(own, phases(all_reduces.job.config, values, nodes), strict=False)
        for (segment, phase), pairs in groupby(order, key=lambda pair: pair[1]):
            part = [one for one, _ in pairs]
            begin, end = part[0].begin_ns, part[-1].end_ns
            trace.slice(name, SEGMENTS, f"{phase}, segment {segment}", begin, end, frames=len(part))


def phases(config: RingConfig, values: int, nodes: int) -> Iterator[tuple[int, str]]:
    """Yield segment and phase of each DATA frame that a node sends in an all-reduce, in order.

    Of 2(N - 1) slices a node sends its own and N - 2 partial sums, then totals.
    """
    for number, segment in enumerate(config.segments(values, nodes)):
        frames = -(-segment[0].words // config.frame_words)
        for phase in PHASES:
            yield from repeat((number, phase), frames * (nodes - 1))
