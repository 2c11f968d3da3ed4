"""Training of a CNN: hyper-parameters, order of frames, and sequence of the nodes' jobs.

The mathematics is in docs/systems/layers.md, "Training".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.base.limits import MAX_SEED

MAX_EPOCHS = 100_000
MAX_RATE = 1_000_000
MIN_NORMAL = 2.0**-126  # smallest binary32 number that is not subnormal
CONSTANT, COSINE, STEP = "constant", "cosine", "step"

Order = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Schedule of the learning rate over epochs."""

    kind: str = CONSTANT  #: CONSTANT, COSINE or STEP
    every: int = 1  #: epochs between two steps of a step schedule
    factor: float = 1.0  #: factor of the rate at each step, in (0, 1]

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule of ``constant``, ``cosine`` or, say, ``step:30:0.1``. Raises ValueError."""
        if text in (CONSTANT, COSINE):
            return cls(text)
        match = re.fullmatch(rf"{STEP}:(\d{{1,6}}):(\d*\.?\d+(?:e-?\d{{1,2}})?)", text)
        if not match or int(match[1]) < 1 or not 0 < float(match[2]) <= 1:
            kinds = f"{CONSTANT}, {COSINE} or {STEP}:EPOCHS:FACTOR with a factor in (0, 1]"
            raise ValueError(f"schedule must be {kinds}, not {text!r}")
        return cls(STEP, int(match[1]), float(match[2]))

    def __str__(self) -> str:
        factor = repr(self.factor).removesuffix(".0")  # every digit: it is parsed again
        return f"{STEP}:{self.every}:{factor}" if self.kind == STEP else self.kind

    def factor_at(self, epoch: int, epochs: int) -> float:
        """Return the ratio of an epoch's learning rate to the initial one.

        ``epoch``: from 0 to ``epochs`` − 1.
        """
        if self.kind == COSINE:
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        return self.factor ** (epoch // self.every) if self.kind == STEP else 1.0


@dataclass(frozen=True)
class Job:
    """Training job of a node: a number of batches, of which the last may be short.

    Numbers are rounded once, from binary64 to binary32.
    """

    frames: int  #: frames of the job
    batch: int  #: frames of a batch
    eta: np.float32  #: −rate / frames of a batch
    last_eta: np.float32  #: −rate / frames of the last batch
    momentum: np.float32

    @classmethod
    def of(cls, frames: int, batch: int, rate: float, momentum: float) -> Job:
        """Return the job of a learning rate and momentum."""
        last = frames % batch or batch
        return cls(frames, batch, np.float32(-rate / batch), np.float32(-rate / last), np.float32(momentum))


@dataclass(frozen=True, order=True)
class Place:
    """Place between two batches of a training."""

    epoch: int = 0  #: number of epochs before it
    frame: int = 0  #: number of frames before it in its epoch

    def trained(self, frames: int) -> int:
        """Return the number of frames that are trained before this place. ``frames``: frames of an epoch."""
        return self.epoch * frames + self.frame


@dataclass(frozen=True)
class Stretch:
    """Training between two checkpoints, which is one job."""

    epoch: int  #: index of the epoch, from 0
    first: int  #: index of the first frame in the epoch's order, from 0
    job: Job
    ends_epoch: bool  #: true for the last stretch of its epoch

    @property
    def end(self) -> int:
        """Index in the epoch's order of the first frame after the stretch."""
        return self.first + self.job.frames

    @property
    def start_place(self) -> Place:
        """Place at which the stretch starts."""
        return Place(self.epoch, self.first)

    @property
    def end_place(self) -> Place:
        """Place at which the stretch ends."""
        return Place(self.epoch + 1) if self.ends_epoch else Place(self.epoch, self.end)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of a training. Raises ValueError that names parameter, value and limit."""

    epochs: int = 15
    batch: int = 32  #: frames between two updates of the parameters
    rate: float = 0.1  #: initial learning rate
    momentum: float = 0.9
    schedule: Schedule = Schedule()
    seed: int = 0  #: seed of the order of frames
    checkpoint: int | None = None  #: batches between two checkpoints; None for one checkpoint per epoch

    def __post_init__(self) -> None:
        _check("epochs", self.epochs, 1, MAX_EPOCHS)
        _check("batch", self.batch, 1, (1 << 24) - 1)
        _check("lr", self.rate, 0, MAX_RATE)
        _check("momentum", self.momentum, 0, 1)
        _check("seed", self.seed, 0, MAX_SEED)
        if self.checkpoint is not None:
            _check("checkpoint", self.checkpoint, 1, 1 << 24)
        self._check_binary32()

    def _check_binary32(self) -> None:
        """Raise ValueError for a rate or momentum that hardware would flush to 0."""
        last = self.rate * self.schedule.factor_at(self.epochs - 1, self.epochs)  # no schedule rises
        if self.rate and abs(last / self.batch) < MIN_NORMAL:
            raise ValueError(
                f"lr must be 0, or lr / batch at least 2^-126 in every epoch: "
                f"in epoch {self.epochs} of schedule {self.schedule}, lr is {last:g}"
            )
        if 0 < self.momentum < MIN_NORMAL:
            raise ValueError(f"momentum must be 0 or at least 2^-126, not {self.momentum:g}")

    def order(self, epoch: int, frames: int) -> Order:
        """Return the order of an epoch's frames. ``epoch`` counts from 0."""
        return np.random.default_rng([self.seed, epoch]).permutation(frames)

    def stretches(self, frames: int, start: Place = Place()) -> Iterator[Stretch]:
        """Yield the stretches from ``start`` to the end of training. ``frames``: frames of an epoch."""
        return (stretch for stretch in self._stretches(frames) if stretch.start_place >= start)

    def _stretches(self, frames: int) -> Iterator[Stretch]:
        length = frames if self.checkpoint is None else self.checkpoint * self.batch
        for epoch in range(self.epochs):
            rate = self.rate * self.schedule.factor_at(epoch, self.epochs)
            for first in range(0, frames, length):
                job = Job.of(min(length, frames - first), self.batch, rate, self.momentum)
                yield Stretch(epoch, first, job, ends_epoch=first + job.frames == frames)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also true for a NaN
        raise ValueError(f"{name} must be in {low:,}…{high:,}, not {value:g}")
