"""How a CNN is trained: hyper-parameters, the order of frames, and the jobs that a node carries out one by one.

docs/systems/cluster.md, "Training", has the mathematics.
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
    """The learning rate over epochs, as a share of the first. ``every`` and ``factor`` are of steps."""

    kind: str = CONSTANT
    every: int = 1
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """``constant``, ``cosine`` or ``step:30:0.1``. Raises ValueError."""
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
        """Of the first rate, in an epoch counted from 0."""
        if self.kind == COSINE:
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        return self.factor ** (epoch // self.every) if self.kind == STEP else 1.0


@dataclass(frozen=True)
class Job:
    """Frames that a node trains on from one ``start`` on, whole batches; the last one may be short.

    ``eta`` is −rate / batch, ``last_eta`` that of the last batch; both are rounded once, as ``momentum`` is.
    """

    frames: int
    batch: int
    eta: np.float32
    last_eta: np.float32
    momentum: np.float32

    @classmethod
    def of(cls, frames: int, batch: int, rate: float, momentum: float) -> Job:
        """The job of that learning rate."""
        last = frames % batch or batch
        return cls(frames, batch, np.float32(-rate / batch), np.float32(-rate / last), np.float32(momentum))


@dataclass(frozen=True, order=True)
class Place:
    """Between two batches of a training: so many whole epochs, and frames of the next one, lie before it."""

    epoch: int = 0
    frame: int = 0

    def trained(self, frames: int) -> int:
        """All frames before it, where an epoch has so many."""
        return self.epoch * frames + self.frame


@dataclass(frozen=True)
class Stretch:
    """What is trained between two checkpoints: frames ``first`` on of an epoch's order, counted from 0.

    ``ends``: whether it is the last of its epoch.
    """

    epoch: int
    first: int
    job: Job
    ends: bool

    @property
    def end(self) -> int:
        """The frame of the epoch behind it."""
        return self.first + self.job.frames

    @property
    def before(self) -> Place:
        """Where it begins."""
        return Place(self.epoch, self.first)

    @property
    def behind(self) -> Place:
        """Where it ends."""
        return Place(self.epoch + 1) if self.ends else Place(self.epoch, self.end)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters. Raises ValueError that names parameter, value and limit.

    ``seed`` decides the order of frames. ``checkpoint``: batches between two; None for one an epoch.
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
        """Refuse a number too small for binary32: hardware takes it for 0, and nothing would learn."""
        last = self.rate * self.schedule.share(self.epochs - 1, self.epochs)  # no schedule rises
        if self.rate and abs(last / self.batch) < SMALLEST:
            raise ValueError(
                f"lr must be 0, or lr / batch at least 2^-126 in every epoch: "
                f"in epoch {self.epochs} of schedule {self.schedule}, lr is {last:g}"
            )
        if 0 < self.momentum < SMALLEST:
            raise ValueError(f"momentum must be 0 or at least 2^-126, not {self.momentum:g}")

    def order(self, epoch: int, frames: int) -> Order:
        """Which frame comes when, in an epoch counted from 0."""
        return np.random.default_rng([self.seed, epoch]).permutation(frames)

    def stretches(self, frames: int, start: Place = Place()) -> Iterator[Stretch]:
        """The training on so many frames, from checkpoint to checkpoint, from ``start`` on."""
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
