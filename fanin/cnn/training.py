"""Training of a CNN: hyper-parameters, order of frames, and the sequence of a node's jobs.

docs/systems/layers.md, "Training", has the mathematics.
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
SMALLEST = 2.0**-126  # of binary32 that is not subnormal
CONSTANT, COSINE, STEP = "constant", "cosine", "step"

Order = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Schedule of the learning rate over epochs.

    ``kind``: constant, cosine or step.
    ``every``, ``factor``: a step schedule multiplies the rate by ``factor`` every ``every`` epochs.
    """

    kind: str = CONSTANT
    every: int = 1
    factor: float = 1.0

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

    def share(self, epoch: int, epochs: int) -> float:
        """Return an epoch's learning rate as a share of the first. ``epoch`` counts from 0."""
        if self.kind == COSINE:
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        return self.factor ** (epoch // self.every) if self.kind == STEP else 1.0


@dataclass(frozen=True)
class Job:
    """Training job of a node, started once: whole batches, of which the last may be short.

    ``frames``: number of frames.
    ``batch``: frames of a batch.
    ``eta``: −rate / batch, rounded once.
    ``last_eta``: −rate / frames of the last batch, rounded once.
    ``momentum``: rounded once.
    """

    frames: int
    batch: int
    eta: np.float32
    last_eta: np.float32
    momentum: np.float32

    @classmethod
    def of(cls, frames: int, batch: int, rate: float, momentum: float) -> Job:
        """Return the job of a learning rate and momentum."""
        last = frames % batch or batch
        return cls(frames, batch, np.float32(-rate / batch), np.float32(-rate / last), np.float32(momentum))


@dataclass(frozen=True, order=True)
class Place:
    """Place between two batches of a training, after ``epoch`` epochs and ``frame`` frames of the next."""

    epoch: int = 0
    frame: int = 0

    def trained(self, frames: int) -> int:
        """Return the number of frames trained before it. ``frames``: frames of an epoch."""
        return self.epoch * frames + self.frame


@dataclass(frozen=True)
class Stretch:
    """Training between two checkpoints.

    ``epoch``: epoch, from 0.
    ``first``: first frame in the epoch's order, from 0.
    ``job``: the training job.
    ``ends``: true for the last stretch of its epoch.
    """

    epoch: int
    first: int
    job: Job
    ends: bool

    @property
    def end(self) -> int:
        """Frame of the epoch that follows the stretch's last one."""
        return self.first + self.job.frames

    @property
    def before(self) -> Place:
        """Place of its start."""
        return Place(self.epoch, self.first)

    @property
    def behind(self) -> Place:
        """Place of its end."""
        return Place(self.epoch + 1) if self.ends else Place(self.epoch, self.end)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of a training. Raises ValueError that names parameter, value and limit.

    ``rate``: initial learning rate.
    ``seed``: seed of the order of frames.
    ``checkpoint``: batches between two checkpoints; None for one checkpoint an epoch.
    """

    epochs: int = 15
    batch: int = 32
    rate: float = 0.1
    momentum: float = 0.9
    schedule: Schedule = Schedule()
    seed: int = 0
    checkpoint: int | None = None

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
        """Raise ValueError for a number that hardware flushes to 0, so that nothing would learn."""
        last = self.rate * self.schedule.share(self.epochs - 1, self.epochs)  # no schedule rises
        if self.rate and abs(last / self.batch) < SMALLEST:
            raise ValueError(
                f"lr must be 0, or lr / batch at least 2^-126 in every epoch: "
                f"in epoch {self.epochs} of schedule {self.schedule}, lr is {last:g}"
            )
        if 0 < self.momentum < SMALLEST:
            raise ValueError(f"momentum must be 0 or at least 2^-126, not {self.momentum:g}")

    def order(self, epoch: int, frames: int) -> Order:
        """Return the order of an epoch's frames. ``epoch`` counts from 0."""
        return np.random.default_rng([self.seed, epoch]).permutation(frames)

    def stretches(self, frames: int, start: Place = Place()) -> Iterator[Stretch]:
        """Yield the stretches of a training from ``start``. ``frames``: frames of an epoch."""
        return (stretch for stretch in self._stretches(frames) if stretch.before >= start)

    def _stretches(self, frames: int) -> Iterator[Stretch]:
        length = frames if self.checkpoint is None else self.checkpoint * self.batch
        for epoch in range(self.epochs):
            rate = self.rate * self.schedule.share(epoch, self.epochs)
            for first in range(0, frames, length):
                job = Job.of(min(length, frames - first), self.batch, rate, self.momentum)
                yield Stretch(epoch, first, job, ends=first + job.frames == frames)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # NaN neither
        raise ValueError(f"{name} must be in {low:,}…{high:,}, not {value:g}")
