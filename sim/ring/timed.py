"""Nodes that do not learn: random gradients, for runs of which only the time is asked, and the sums."""

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

_SPREAD = 1e-2  # σ of a gradient's values


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Layers of so many values, normal ones by ``seed``: :class:`fanin.sim.ring.hosts.Learners`.

    Gradients are the same in each step. ``batch`` is the number of samples that computing takes time for.
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
        """0."""
        return 0

    def workers(self, now: Callable[[], float], tell: Tell | None = None) -> list[Worker]:
        """Each node's program."""
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
        """Nothing is told."""

    def result(self) -> None:
        """Nothing is learnt."""


class _Random:
    def __init__(self, timed: Timed, node: int):
        self._timed, self._node = timed, node

    def forward(self) -> None:
        """Nothing to do."""

    def backward(self, layer: int) -> Float32:
        """Normal values."""
        rng = np.random.default_rng((self._timed.seed, self._node, layer))
        return rng.standard_normal(self._timed.counts[layer], dtype=np.float32) * np.float32(_SPREAD)

    def update(self, layer: int, total: Floats) -> None:
        """Nothing to do."""

    def end_step(self) -> None:
        """Nothing to do."""
