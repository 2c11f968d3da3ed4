"""Fully connected layer (layer kind ``dense``): a 1×1 convolution of the flattened input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fanin.cnn.flow.engine import block_gradients, block_outputs
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Float32
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import Parallelism, Shape, Storage, ceil_div
from fanin.cnn.layers.schedule import Way
from fanin.cnn.layers.window import Pair


@dataclass(frozen=True, kw_only=True)
class Dense(Conv):
    """Fully connected layer, a convolution whose window is the whole input, flattened."""

    kind: ClassVar[str] = "dense"
    spilled_component: ClassVar[str] = "streamed_dense.StreamedDense"
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Chip or DRAM. Each way reads a weight once a frame, so DRAM can stream the weights."""
        return tuple(Storage)

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memories of each way.

        With weights in DRAM, the input gradient has no ring of rows. Its memories hold the terms of a tile of
        input groups, and the tile's sums.
        """
        if storage is Storage.CHIP or not self.gradient:
            return super().buffers(parallelism, storage)
        schedule, width = self.schedule(parallelism), WORD_BITS * parallelism.pic
        return (
            *schedule.memories(Way.FORWARD),
            *schedule.memories(Way.WEIGHT_GRADIENT),
            *schedule.outputs.memories(schedule.output_rows),
            Memory(width=width, depth=schedule.term_rows * schedule.ogs),  # terms
            Memory(width=width, depth=schedule.tile),  # sums
        )

    @property
    def input(self) -> Shape:
        """Shape of the flattened input."""
        return Shape(1, 1, self.inputs[0].words)

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave: after the input's last position."""
        return block_outputs(
            self.schedule(parallelism), inputs[0][-1:], ceil_div(self.output.c, parallelism.po)
        )

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: the whole input is one position."""
        shape = self.inputs[port]
        ready = np.repeat(block_gradients(self.schedule(parallelism), arrivals), shape.h * shape.w)
        return paced(ready, ceil_div(shape.c, parallelism.pi))

    def channels_first(self, weights: Float32) -> Float32:
        """Return weights as (output, input channel, row, column); the kernel is the whole image."""
        shape = self.inputs[0]
        return super().channels_first(weights.reshape(shape.h, shape.w, shape.c, self.output_channels))
