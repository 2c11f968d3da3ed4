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
    job: RingTraining, times: Sequence[Times], log: LinkLog, *, start: float = 0.0, first_step: int = 0
) -> str:
    """Return the trace of a run from step ``first_step`` on.

    - ``times``: of the hosts, in seconds from ``start`` on; empty for a failed run.
    - ``log``: frames on the links; none if the run used a model of the NICs' time.
    - ``start``: simulated time, in seconds, at which all ``times`` are 0.
    """
    trace, names = Trace(), [f"node {node}" for node in range(job.nodes)]
    for name in names:
        trace.declare(name, TRACKS)
    _add_hosts(trace, times, names, start * _NS, first_step)
    sent = decode_log(log, _Jobs().frame)
    for node, name in enumerate(names):
        _add_all_reduces(trace, name, _data_of(sent, node), _AllReduces(job, node, first_step))
    add_links(trace, sent, names, log.left_out)
    add_credit(trace, sent, names)
    return trace.text()


def _add_hosts(
    trace: Trace, times: Sequence[Times], names: Sequence[str], start_ns: float, first_step: int
) -> None:
    """Add steps, and the work of workers and NICs in them."""

    def add(name: str, track: str, text: str, begin: float, end: float) -> None:
        trace.slice(name, track, text, start_ns + begin * _NS, start_ns + end * _NS)

    steps = [
        (begin, end, name, step)
        for name, host_times in zip(names, times, strict=False)
        for step, (begin, end) in enumerate(zip([0.0, *host_times.steps], host_times.steps, strict=False))
    ]
    for begin, end, name, step in trace.first("steps", sorted(steps, key=lambda step: step[0])):
        add(name, STEPS, f"step {first_step + step}", begin, end)
    spans = [
        (span, name)
        for name, host_times in zip(names, times, strict=False)
        for span in host_times.timeline.kept
    ]
    left_out = sum(host_times.timeline.left_out for host_times in times)
    for span, name in trace.first("spans of hosts", sorted(spans, key=lambda pair: pair[0].begin), left_out):
        track = HOST if span.kind == _NIC else WORKER
        add(name, track, f"{KINDS[span.kind]} {span.layer}", span.begin, span.end)


class _Jobs:
    """Decoder of frames that distinguishes jobs with the same number, which groups reuse.

    A node runs one job at a time. Frames that arrive may be of an earlier job or of the next one.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, list[int]] = {}  # job numbers so far, by port

    def frame(self, logged: LoggedFrame) -> Frame | None:
        """Decode a frame; None for other frames. Its stream is the index of its job among those of its port.

        A job begins with the first frame that the node sends (``up``) with another number. A received frame
        belongs to the latest job with its number, or to the next job if no job has had it.
        """
        decoded_frame = link_frame(RING_LINK, logged.head)
        if decoded_frame is None:
            return None
        job, numbers = decoded_frame.facts["job"], self._numbers.setdefault(logged.port, [])
        if logged.up and job not in numbers[-1:]:
            numbers.append(job)
        newer_jobs = next((n for n, number in enumerate(reversed(numbers)) if number == job), -1)
        return Frame(
            decoded_frame.kind, decoded_frame.facts, len(numbers) - 1 - newer_jobs, decoded_frame.number
        )


def _data_of(sent: Sequence[TracedFrame], node: int) -> list[TracedFrame]:
    """Return the first transmissions of a node's DATA frames, in the order of its all-reduces."""
    return [
        sending
        for sending in sent
        if sending.logged.up and sending.logged.port == node
        if sending.frame.number is not None and not sending.is_retransmission
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
        rings = [
            (f"round {index} ({plan_round.level})", len(ring.members))
            for index, plan_round in enumerate(self.job.groups.plan.rounds)
            for ring in plan_round.rings
            if self.node in ring.members
        ]
        exchange, index = divmod(number, len(rings))
        name, members = rings[index]
        return f"{self._layer(exchange)}, {name}", members

    def _layer(self, exchange: int) -> str:
        layers = self.job.training.network.layers
        step, index = divmod(exchange, layers)
        return f"layer {layers - 1 - index}, step {self.first_step + step}"


def _add_all_reduces(trace: Trace, name: str, sent: Sequence[TracedFrame], all_reduces: _AllReduces) -> None:
    """Add a slice per all-reduce of a node, and per phase of its segments, for the time in which it sends.

    ``sent``: first transmissions of the node's DATA frames, whose order gives their phases (:func:`phases`).
    """
    operations = groupby(sent, key=lambda sending: (sending.frame.stream, sending.frame.facts["operation"]))
    for number, (_, sendings) in enumerate(operations):
        data_frames = list(sendings)
        text, nodes = all_reduces.describe(number)
        values = data_frames[0].frame.facts["count"]
        trace.slice(name, FRAMES, text, data_frames[0].begin_ns, data_frames[-1].end_ns, values=values)
        order = zip(data_frames, phases(all_reduces.job.config, values, nodes), strict=False)
        for (segment, phase), pairs in groupby(order, key=lambda pair: pair[1]):
            part = [sending for sending, _ in pairs]
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
