"""What a cluster is to do, and what has come of it."""

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
    """Frames, and what is done with them: they train as ``job`` says, or are evaluated.

    ``images`` and one-hot ``labels``: one each for each index of the first axis.
    """

    job: Job | None
    images: Float32
    labels: Float32
    dump: bool = False  #: whether the parameters are read back behind it


@dataclass(frozen=True)
class DeviceCounters:
    """What a device counted in a job: of the node, and of each of its connections, by their numbers.

    ``links`` have ``failure`` besides, a LinkFailure's value.
    """

    counters: dict[str, int]
    links: dict[int, dict[str, int]]


@dataclass(frozen=True)
class EpochResult:
    """What came out of an epoch, carried out as ``job`` says.

    Stages are those of the whole network; the first device is the host's.
    """

    job: Job | None
    results: Float32  #: the loss's softmax, a row for each frame
    written: list[int]  #: of each frame, the cycle in which its result was in memory
    devices: list[DeviceCounters]
    streams: list[StreamCounters]  #: of each stream that leaves a stage, in the job
    fifos: dict[StageFifo, int]  #: the most that each FIFO has held in the job
    began: int  #: the cycle in which the host's device began it, from which times of streams count
    states: list[Words] | None = None  #: of each stage that has state, if they were asked for

    @property
    def counters(self) -> dict[str, int]:
        """Those of the host's node."""
        return self.devices[0].counters


@dataclass(frozen=True)
class HostsResult:
    """Epochs that were carried out. ``failure``: why there are no more, if the nodes have failed a job.

    ``last``: what devices had counted in that job, ``written``: the cycles in which its results came.
    """

    epochs: list[EpochResult]
    failure: str | None = None
    last: list[DeviceCounters] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
