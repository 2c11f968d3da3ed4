"""Timeline of ``fanin cluster run`` in RTL: jobs, batches, layers' work on a batch, frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fanin.cnn.parts import PlacedNetwork
from fanin.job import worker_endpoint
from fanin.report.links import Frame, TracedFrame, add_credit, add_links, decode_log, link_frame
from fanin.report.perfetto import Trace
from fanin.sim.cnn.batch_times import drain_and_update, timeline_of
from fanin.sim.cnn.epochs import EpochResult
from fanin.sim.link_log import MOST_FRAMES, LinkLog, LoggedFrame
from fanin.wire.connection import CONNECTION_LINK

_RUN = "run"  # the trace's process of jobs; the next line has its tracks
_JOBS, _BATCHES, _DRAIN = "jobs", "batches, to their last results", "timed batches, from their last images in"
_LAYER_PHASES = ("forward", "backward", "update")  # phases of a layer's work on a batch
_PS_PER_NS = 1000  # in a nanosecond
_EMPTY_TIMELINE: Mapping[str, Any] = {"layers": ()}  # timeline of an evaluation


@dataclass(frozen=True)
class _Job:
    """Finished job. Times other than ``start_ps`` are cycles of the job's simulation."""

    start_ps: int  #: start of the job's simulation
    name: str
    start_cycle: int
    end_cycle: int
    batches: tuple[int, ...]  #: cycle in which each batch's last result was in memory
    timeline: Mapping[str, Any]  #: ``timeline`` of run.json's ``hardware``; empty for an evaluation
    drain: tuple[int, int] | None  #: the timed batch's last image and last update; None for an evaluation


class ClusterTrace:
    """Collector of a run's jobs and frames for its trace."""

    def __init__(self, placement: PlacedNetwork, period_ps: int):
        self._placement, self._period_ps = placement, period_ps
        self._macs = {name: worker_endpoint(number).mac for number, name in enumerate(placement.names)}
        self._sources = {
            connection.number: placement.devices[connection.source] for connection in placement.connections
        }
        self._jobs: list[_Job] = []
        self._started_jobs = 0  # started jobs, including failed ones
        self._sent: list[TracedFrame] = []  # first frames, at most MOST_FRAMES, of all jobs
        self._omitted_frames = 0

    def add_frames(self, start_ps: int, log: LinkLog) -> None:
        """Add the frames of the next job. ``start_ps``: start of the job's simulation."""
        sent = decode_log(log.shifted(start_ps), self._frame)
        shown = sent[: MOST_FRAMES - len(self._sent)]
        self._sent += shown
        self._omitted_frames += len(sent) - len(shown) + log.left_out
        self._started_jobs += 1

    def add_job(self, start_ps: int, result: EpochResult) -> None:
        """Add a finished job. ``start_ps``: start of the job's simulation."""
        result_cycles, job, network = result.result_cycles, result.job, self._placement.network
        batch = job.batch if job else len(result_cycles)
        name = f"{'train' if job else 'evaluate'} {len(result_cycles):,} frames"
        end_cycle = result.start_cycle + max(
            counters.busy + counters.starved + counters.blocked for counters in result.streams
        )
        batch_ends = tuple(
            result_cycles[min(end, len(result_cycles)) - 1]
            for end in range(batch, len(result_cycles) + batch, batch)
        )
        timeline = timeline_of(network, result.streams) if job else _EMPTY_TIMELINE
        drain = drain_and_update(network, result.streams) if job else None
        self._jobs.append(_Job(start_ps, name, result.start_cycle, end_cycle, batch_ends, timeline, drain))

    def text(self, **notes: Any) -> str:
        """Return the trace as JSON text. ``notes``: values to record in the trace, by name."""
        trace = Trace()
        for name, value in notes.items():
            trace.note(name.replace("_", " "), value)
        trace.declare(_RUN, (_JOBS, _BATCHES, _DRAIN))
        for name in self._placement.names:
            stages = zip(self._placement.network.stages, self._placement.devices, strict=True)
            layers = [stage.name for stage, device in stages if device == name]
            trace.declare(name, [f"{layer} {phase}" for layer in layers for phase in _LAYER_PHASES])
        self._add_jobs(trace)
        add_links(trace, self._sent, self._placement.names, self._omitted_frames)
        add_credit(trace, self._sent, self._placement.names)
        return trace.text()

    def _add_jobs(self, trace: Trace) -> None:
        """Add jobs, their batches, and the layers' work on timed batches."""
        for job in trace.first("jobs", self._jobs):
            self._slice(trace, job, _RUN, _JOBS, job.name, job.start_cycle, job.end_cycle)
        batches = [
            (job, number, begin, end)
            for job in self._jobs
            for number, (begin, end) in enumerate(
                zip((job.start_cycle, *job.batches), job.batches, strict=False)
            )
        ]
        for job, number, begin, end in trace.first("batches", batches):
            self._slice(trace, job, _RUN, _BATCHES, f"batch {number + 1}", begin, end)
        for job in self._jobs:
            if job.drain:
                begin, end = (job.start_cycle + cycle for cycle in job.drain)
                self._slice(trace, job, _RUN, _DRAIN, "drain and update", begin, end)
        for job, layer, phase, (begin, end) in trace.first("spans of layers", self._spans()):
            self._slice(trace, job, self._device(layer), f"{layer} {phase}", phase, begin, end)

    def _slice(
        self, trace: Trace, job: _Job, process: str, track: str, name: str, begin: int, end: int
    ) -> None:
        times = ((job.start_ps + cycle * self._period_ps) / _PS_PER_NS for cycle in (begin, end))
        trace.slice(process, track, name, *times)

    def _spans(self) -> list[tuple[_Job, str, str, tuple[int, int]]]:
        """Return each timed batch's spans: job, layer, phase, (begin, end)."""
        spans = []
        for job in self._jobs:
            for row in job.timeline["layers"]:
                start = job.start_cycle + job.timeline["start"]
                for phase in _LAYER_PHASES:
                    if row[phase]:
                        begin, end = row[phase]
                        spans.append((job, row["layer"], phase, (start + begin, start + end)))
        return spans

    def _device(self, layer: str) -> str:
        names = [stage.name for stage in self._placement.network.stages]
        return self._placement.devices[names.index(layer)]

    def _frame(self, logged: LoggedFrame) -> Frame | None:
        """Decode a frame of a connection, which has features or gradients. Return None for another frame."""
        frame = link_frame(CONNECTION_LINK, logged.head)
        source = frame and self._sources.get(frame.facts["connection"])
        if frame is None or source is None:
            return None
        kind = frame.kind
        if frame.number is not None:
            kind += " features" if logged.source == self._macs[source] else " gradients"
        # Each job numbers its frames anew.
        return Frame(kind, frame.facts, (self._started_jobs, frame.stream), frame.number)
