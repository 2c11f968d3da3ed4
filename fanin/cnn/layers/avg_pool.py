"""The mean of every window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import (
    Parallelism,
    Storage,
)
from fanin.cnn.layers.pool import Pool
from fanin.cnn.layers.schedule import Way


@dataclass(frozen=True, kw_only=True)
class AvgPool(Pool):
    """The mean of every window, by channel."""

    kind: ClassVar[str] = "avg_pool"

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """As a convolution, which has no weights to learn."""
        schedule = self.schedule(p)
        back = schedule.memories(Way.INPUT_GRADIENT) if self.gradient else ()
        return schedule.memories(Way.FORWARD) + back
