"""Timeline of ``fanin cluster run`` in RTL: jobs, batches, layers' work on a batch, frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fanin.cnn.parts import Placement
from fanin.job import worker_endpoint
from fanin.report.links import Frame, TracedFrame, add_credit, add_links, decode_log, link_frame
from fanin.report.perfetto import Trace
from fanin.sim.cnn.batch_times import drain_and_update, timeline_of
from fanin.sim.cnn.epochs import EpochResult
from fanin.sim.link_log import MOST_FRAMES, LinkLog, LoggedFrame
from fanin.wire.connection import CONNECTION_LINK

_RUN = "run"  # the process of jobs, and its tracks:
_JOBS, _BATCHES, _DRAIN = "jobs", "batches, to their last results", "timed batches, from their last images in"
_PARTS = ("forward", "backward", "update")  # of what a layer does with a batch
_PS = 1000  # in a nanosecond
_NOTHING: Mapping[str, Any] = {"layers": ()}  # timeline of an evaluation


@dataclass(frozen=True)
class _Job:
    """Job that has ended.

    ``start_ps``: start of its simulation; other times are cycles of the simulation.
    ``batches``: when each batch's last result was in memory.
    ``timeline``: timeline of the timed batch, as in run.json's ``hardware``; empty for an evaluation.
    ``drain``: from the timed batch's last image to its last parameter's update; None for an evaluation.
    """

    start_ps: int
    name: str
    began: int
    ended: int
    batches: tuple[int, ...]
    timeline: Mapping[str, Any]
    drain: tuple[int, int] | None


class ClusterTrace:
    """Collector of a run's jobs and frames for its trace."""

    def __init__(self, placement: Placement, period_ps: int):
        self._placement, self._period_ps = placement, period_ps
        self._macs = {name: worker_endpoint(number).mac for number, name in enumerate(placement.names)}
        self._sources = {one.number: placement.devices[one.source] for one in placement.connections}
        self._jobs: list[_Job] = []
        self._begun = 0  # started jobs, including failed ones
        self._sent: list[TracedFrame] = []  # first frames, at most MOST_FRAMES, of all jobs
        self._left_out = 0

    def add_frames(self, start_ps: int, log: LinkLog) -> None:
        """Add the frames of the next job. Their times count from ``start_ps``, its simulation's start."""
        sent = decode_log(log.later(start_ps), self._frame)
        kept = sent[: MOST_FRAMES - len(self._sent)]
        self._sent += kept
        self._left_out += len(sent) - len(kept) + log.left_out
        self._begun += 1

    def add_job(self, start_ps: int, result: EpochResult) -> None:
        """Add a finished job. ``start_ps``: start of its simulation."""
        written, job, network = result.written, result.job, self._placement.network
        batch = job.batch if job else len(written)
        name = f"{'train' if job else 'evaluate'} {len(written):,} frames"
        ended = result.began + max(one.busy + one.starved + one.blocked for one in result.streams)
        ends = tuple(written[min(end, len(written)) - 1] for end in range(batch, len(written) + batch, batch))
        timeline = timeline_of(network, result.streams) if job else _NOTHING
        drain = drain_and_update(network, result.streams) if job else None
        self._jobs.append(_Job(start_ps, name, result.began, ended, ends, timeline, drain))

    def text(self, **notes: Any) -> str:
        """Return the trace as text, with these notes."""
        trace = Trace()
        for name, value in notes.items():
            trace.note(name.replace("_", " "), value)
        trace.declare(_RUN, (_JOBS, _BATCHES, _DRAIN))
        for name in self._placement.names:
            stages = zip(self._placement.network.stages, self._placement.devices, strict=True)
            layers = [stage.name for stage, device in stages if device == name]
            trace.declare(name, [f"{layer} {part}" for layer in layers for part in _PARTS])
        self._add_jobs(trace)
        add_links(trace, self._sent, self._placement.names, self._left_out)
        add_credit(trace, self._sent, self._placement.names)
        return trace.text()

    def _add_jobs(self, trace: Trace) -> None:
        """Add jobs, their batches, and the layers' work on timed batches."""
        for job in trace.first("jobs", self._jobs):
            self._slice(trace, job, _RUN, _JOBS, job.name, job.began, job.ended)
        batches = [
            (job, number, begin, end)
            for job in self._jobs
            for number, (begin, end) in enumerate(zip((job.began, *job.batches), job.batches, strict=False))
        ]
        for job, number, begin, end in trace.first("batches", batches):
            self._slice(trace, job, _RUN, _BATCHES, f"batch {number + 1}", begin, end)
        for job in self._jobs:
            if job.drain:
                begin, end = (job.began + cycle for cycle in job.drain)
                self._slice(trace, job, _RUN, _DRAIN, "drain and update", begin, end)
        for job, layer, part, (begin, end) in trace.first("spans of layers", self._spans()):
            self._slice(trace, job, self._device(layer), f"{layer} {part}", part, begin, end)

    def _slice(
        self, trace: Trace, job: _Job, process: str, track: str, name: str, begin: int, end: int
    ) -> None:
        times = ((job.start_ps + cycle * self._period_ps) / _PS for cycle in (begin, end))
        trace.slice(process, track, name, *times)

    def _spans(self) -> list[tuple[_Job, str, str, tuple[int, int]]]:
        """Return each timed batch's spans: job, layer, kind of work, begin and end."""
        found = []
        for job in self._jobs:
            for row in job.timeline["layers"]:
                start = job.began + job.timeline["start"]
                for part in _PARTS:
                    if row[part]:
                        begin, end = row[part]
                        found.append((job, row["layer"], part, (start + begin, start + end)))
        return found

    def _device(self, layer: str) -> str:
        names = [stage.name for stage in self._placement.network.stages]
        return self._placement.devices[names.index(layer)]

    def _frame(self, logged: LoggedFrame) -> Frame | None:
        """Decode a frame of a connection: features to the consumer's device, or gradients back."""
        found = link_frame(CONNECTION_LINK, logged.head)
        source = found and self._sources.get(found.facts["connection"])
        if found is None or source is None:
            return None
        kind = found.kind
        if found.number is not None:
            kind += " features" if logged.source == self._macs[source] else " gradients"
        # Each job numbers its frames anew.
        return Frame(kind, found.facts, (self._begun, found.stream), found.number)
