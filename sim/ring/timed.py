"""Learners with random gradients, for runs in which only time and sums matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.golden.mlp import Floats
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Report, Schedule, Worker

Float32 = npt.NDArray[np.float32]

_SPREAD = 1e-2  # standard deviation of a gradient's values


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Layers of ``counts`` values, without learning: :class:`fanin.sim.ring.schedule.Learners`.

    Gradients are normally distributed by ``seed``, the same in each step. ``batch``: samples per step, which
    determine the compute time.
    """

    counts: list[int]
    nodes: int
    batch: int
    steps: int = 1
    profile: WorkerProfile
    schedule: Schedule
    seed: int = 0

    @property
    def first_step(self) -> int:
        """Always 0."""
        return 0

    def workers(self, clock: Callable[[], float], report: Report | None = None) -> list[Worker]:
        """Return each node's program."""
        return [
            Worker(
                _RandomLearner(self, node),
                self.counts,
                batch=self.batch,
                profile=self.profile,
                schedule=self.schedule,
                clock=clock,
            )
            for node in range(self.nodes)
        ]

    def handle(self, node: int, event: Any) -> None:
        """Do nothing: these learners pass no events."""

    def result(self) -> None:
        """Return None: nothing is learned."""


class _RandomLearner:
    """Learner of one node, with random gradients."""

    def __init__(self, timed: Timed, node: int):
        self._timed, self._node = timed, node

    def forward(self) -> None:
        """Do nothing."""

    def backward(self, layer: int) -> Float32:
        """Return normally distributed values."""
        rng = np.random.default_rng((self._timed.seed, self._node, layer))
        return rng.standard_normal(self._timed.counts[layer], dtype=np.float32) * np.float32(_SPREAD)

    def update(self, layer: int, total: Floats) -> None:
        """Do nothing."""

    def end_step(self) -> None:
        """Do nothing."""
