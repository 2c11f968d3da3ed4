"""Epochs that a cluster runs, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fanin.cnn.driver import StreamCounters
from fanin.cnn.training import Job
from fanin.hdl.layers.registers import StageFifo

Words = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Epoch:
    """Epoch for a cluster to run. The first axis of ``images`` and ``labels`` is the frame."""

    job: Job | None  #: training job; None to evaluate
    images: Float32
    labels: Float32  #: one-hot
    dump: bool = False  #: true to read the parameters back after the epoch


@dataclass(frozen=True)
class DeviceCounters:
    """Counters of a device in a job."""

    counters: dict[str, int]  #: counters of the node, by name
    links: dict[int, dict[str, int]]  #: counters by connection and name; ``failure`` is a LinkFailure's value


@dataclass(frozen=True)
class EpochResult:
    """Result of an epoch.

    Stages are numbered in the whole network. The first device is the host's.
    """

    job: Job | None
    results: Float32  #: the loss's softmax, a row for each frame
    result_cycles: list[int]  #: cycle in which each frame's result was in memory
    devices: list[DeviceCounters]  #: counters of each device
    streams: list[StreamCounters]  #: counters of each stream that leaves a stage
    fifos: dict[StageFifo, int]  #: highest level of each FIFO in the job
    start_cycle: int  #: cycle in which the host's device started the job; times of streams count from it
    states: list[Words] | None = None  #: words of each stage that has state; None without ``dump``

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the host's node."""
        return self.devices[0].counters


@dataclass(frozen=True)
class HostsResult:
    """Results of all finished epochs, and the failure that ended the run, if any."""

    epochs: list[EpochResult]
    failure: str | None = None  #: cause of the failed job; None if no job failed
    failed_counters: list[DeviceCounters] = field(default_factory=list)  #: of each device, in the failed job
    result_cycles: list[int] = field(default_factory=list)  #: cycles of the failed job's results in memory
