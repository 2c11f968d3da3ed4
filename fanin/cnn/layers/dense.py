"""Fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import (
    Parallelism,
    Shape,
    Storage,
)
from fanin.cnn.layers.schedule import Way
from fanin.cnn.layers.window import Pair


@dataclass(frozen=True, kw_only=True)
class Dense(Conv):
    """Fully connected: a convolution whose window is the whole input, flattened."""

    kind: ClassVar[str] = "dense"
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Chip or DRAM: a weight is needed once a frame and way."""
        return tuple(Storage)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """With the weights in DRAM, instead of the input gradient's rows those of its terms, and sums."""
        if storage is Storage.CHIP or not self.gradient:
            return super().buffers(p, storage)
        schedule, width = self.schedule(p), WORD_BITS * p.pic
        return (
            *schedule.memories(Way.FORWARD),
            *schedule.memories(Way.WEIGHT_GRADIENT),
            *schedule.outputs.memories(schedule.output_rows),
            Memory(width=width, depth=schedule.term_rows * schedule.ogs),
            Memory(width=width, depth=schedule.tile),
        )

    @property
    def input(self) -> Shape:
        """The input, flattened."""
        return Shape(1, 1, self.inputs[0].words)
