"""The largest word of every window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import (
    Parallelism,
    Storage,
)
from fanin.cnn.layers.pool import Pool
from fanin.cnn.layers.schedule import Raster, Way


@dataclass(frozen=True, kw_only=True)
class MaxPool(Pool):
    """The largest word of every window, by channel; of equals the first in raster order."""

    kind: ClassVar[str] = "max_pool"

    def check(self) -> None:
        """Raise ValueError where a window would see nothing but padding, too."""
        super().check()
        if any(side >= size for side, size in zip(self.padding, 2 * self.kernel, strict=True)):
            window = f"{self.kernel[0]}×{self.kernel[1]}"
            raise ValueError(f"a window of {window} would see nothing but padding, which is {self.padding}")

    @property
    def saved(self) -> int:
        """Where in its window each output was found: row · kernel width + column, a word each."""
        return self.output.words if self.gradient else 0

    def pairs(self, p: Parallelism) -> Raster:
        """Outputs, or their gradients, each group beside its places in the windows."""
        return replace(self.schedule(p).outputs, lanes=2 * p.po)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows, what is the largest so far, and pairs; on the way back pairs, and rows of gradients."""
        schedule, pairs = self.schedule(p), self.pairs(p)
        place = (self.kernel[0] * self.kernel[1] - 1).bit_length()
        largest = Memory(width=1 + p.po * (WORD_BITS + place), depth=schedule.round_steps(Way.FORWARD))
        lines = schedule.features.memories(schedule.feature_rows)
        found = (*lines, largest, *pairs.memories(schedule.result_rows))
        if not self.gradient:
            return found
        sums = schedule.features.memories(schedule.input_gradient_rows, copies=2)
        return (*found, *pairs.memories(schedule.output_rows), *sums)
