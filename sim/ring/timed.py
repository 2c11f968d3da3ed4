"""Nodes that do not learn: random gradients, for runs in which only time and sums matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.golden.mlp import Floats
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Schedule, Tell, Worker

Float32 = npt.NDArray[np.float32]

_SPREAD = 1e-2  # standard deviation of a gradient's values


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Layers of ``counts`` values, normally distributed by ``seed``: :class:`fanin.sim.ring.hosts.Learners`.

    Gradients are the same in each step. ``batch`` is the number of samples in the compute time.
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

    def workers(self, now: Callable[[], float], tell: Tell | None = None) -> list[Worker]:
        """Return each node's program."""
        return [
            Worker(
                _Random(self, node),
                self.counts,
                batch=self.batch,
                profile=self.profile,
                schedule=self.schedule,
                now=now,
            )
            for node in range(self.nodes)
        ]

    def told(self, node: int, what: Any) -> None:
        """Do nothing: these learners pass no events."""

    def result(self) -> None:
        """Return None: nothing is learned."""


class _Random:
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
