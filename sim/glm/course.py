"""Parts of a training: the epochs of one run, its job, and the history of earlier epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.hdl.glm.node_registers import ROUND_TRIPS
from fanin.job import FIRST_JOB
from fanin.sim.cosim.run import RunResult
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.operations import OperationTimes, times_of

Int32 = npt.NDArray[np.int32]


@dataclass
class Timeline:
    """Events of all nodes: arrays of the same length, in order of time."""

    cycle: npt.NDArray[np.uint64]
    node: npt.NDArray[np.uint32]
    event: npt.NDArray[np.uint8]  # index into ``names``
    names: tuple[str, ...]


@dataclass
class TrainRun:
    """Result of a training on simulated nodes; counters are sums over the run."""

    models: list[Int32] = field(default_factory=list)  # per epoch, in column order
    cycles: list[int] = field(default_factory=list)  # per epoch, of the slowest node
    counters: list[dict[str, int]] = field(default_factory=list)  # per node, after all its packets had arrived
    replicas_equal: bool = True  # data-parallel: every worker has the same model after every epoch
    allreduce_ns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # per operation and node
    timeline: Timeline | None = None
    raw: RunResult = field(default_factory=RunResult)


@dataclass(frozen=True, kw_only=True)
class Course:
    """Part of a training that one run carries out.

    - ``first``: number of finished epochs; the run begins with the next one.
    - ``model``: weights after these epochs, in column order; None: all weights are 0.
    - ``job``: id of the aggregation job.
    - ``base``: first slot of the job in the switch.
    - ``checkpoint``: epochs between two checkpoints; None: no checkpoints.
    - ``keep``: called with the run so far, at each checkpoint and at the end of the run.
    """

    first: int = 0
    model: Int32 | None = None
    job: int = FIRST_JOB
    base: int = 0
    checkpoint: int | None = None
    keep: Callable[[TrainRun], None] | None = None

    def is_checkpoint(self, epoch: int, epochs: int) -> bool:
        """Return whether a checkpoint follows ``epoch``; False at the last epoch, which is always kept."""
        return self.checkpoint is not None and epoch < epochs and epoch % self.checkpoint == 0


WHOLE_TRAINING = Course()


def first_course(network: NetworkConfig) -> Course:
    """Return a whole training in the tree's job, or with one switch in the default job."""
    if not network.tree:
        return WHOLE_TRAINING
    job = network.tree.root.part
    return Course(job=job.id, base=job.base)


@dataclass(frozen=True, kw_only=True)
class History:
    """Finished epochs of a training: the model after them, and their statistics.

    - ``epoch``: number of finished epochs.
    - ``model``: weights in the data's order of columns, also of sparse nodes.
    - ``scores``: loss, fit and cycles of each epoch.
    - ``counters``: counters of each node, by name.
    - ``allreduce_ns``: latencies in ns, per operation and node.
    - ``raw``: counts of frames, links, switch and jobs.
    """

    epoch: int
    model: Int32
    scores: tuple[tuple[float, float, int], ...]
    counters: list[dict[str, int]]
    allreduce_ns: npt.NDArray[np.float64]
    raw: RunResult

    def followed_by(self, run: TrainRun) -> TrainRun:
        """Return a run with this history's counts added. Models and cycles are only the run's."""
        return TrainRun(
            models=run.models,
            cycles=run.cycles,
            counters=_combine_counters(self.counters, run.counters),
            replicas_equal=run.replicas_equal,
            allreduce_ns=np.concatenate([self.allreduce_ns, run.allreduce_ns]),
            timeline=run.timeline,
            raw=_combine(self.raw, run.raw),
        )


def _combine_counters(before: list[dict[str, int]], after: list[dict[str, int]]) -> list[dict[str, int]]:
    """Return the sums of all counters; round trips, which are estimates, are those of the later run."""
    sums = add_counts(before, after)
    for counters, latest in zip(sums, after, strict=False):
        counters.update({name: latest[name] for name in ROUND_TRIPS if name in latest})
    return list(sums)


def _combine(before: RunResult, after: RunResult) -> RunResult:
    names = ("frames", "links", "switch", "jobs", "switches", "trunks")
    sums = {name: add_counts(getattr(before, name), getattr(after, name)) for name in names}
    return RunResult(
        phases=after.phases,
        cycles=before.cycles + after.cycles,
        error=after.error,
        failed_check=after.failed_check,
        last_reads=after.last_reads,
        watched=_combine_times(times_of(before), times_of(after)),
        events=after.events,
        meetings=after.meetings,
        meeting_seconds=after.meeting_seconds,
        seconds=after.seconds,
        **sums,
    )


def _combine_times(before: OperationTimes, after: OperationTimes) -> OperationTimes:
    """Return the times of both runs; the first packets are those of the first run that has any."""
    cycles = before.allreduce_cycles + after.allreduce_cycles
    return OperationTimes(cycles, before.first_packet or after.first_packet)


def add_counts(before: Any, after: Any) -> Any:
    """Add counts by name and place; a count missing on one side is 0 there."""
    if not before or not after:
        return before or after
    if isinstance(before, Mapping):
        return {name: add_counts(before.get(name, 0), after.get(name, 0)) for name in {**before, **after}}
    if isinstance(before, list):
        return [add_counts(first, second) for first, second in zip_longest(before, after, fillvalue=0)]
    return before + after
