"""Fully connected layer (layer kind ``dense``): a 1×1 convolution of the flattened input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import ClassVar

import numpy as np

from fanin.cnn.flow.engine import block_gradients, block_outputs
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Float32
from fanin.cnn.layers.conv import Conv, schedule_of
from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import Parallelism, Shape, Storage, ceil_div
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.cnn.layers.window import Pair

LARGEST_GROUP = 16  #: frames, at most, for which parameters in DRAM are read once


@dataclass(frozen=True, kw_only=True)
class Dense(Conv):
    """Fully connected layer, a convolution whose window is the whole input, flattened."""

    kind: ClassVar[str] = "dense"
    spilled_component: ClassVar[str] = "streamed_dense.StreamedDense"
    build_fields: ClassVar[tuple[str, ...]] = ("largest_group",)
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    largest_group: int = LARGEST_GROUP  #: frames, at most, for which parameters in DRAM are read once

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Chip or DRAM. Each way reads a weight once a frame, so DRAM can stream the weights."""
        return tuple(Storage)

    def builds(self) -> Iterator[tuple[Parallelism, Storage]]:
        """Yield every choice; with parameters in DRAM also groups of frames."""
        for parallelism in self.parallelisms():
            yield parallelism, Storage.CHIP
            for exponent in range(self.largest_group.bit_length()):
                yield replace(parallelism, frames=1 << exponent), Storage.DRAM

    def as_published(self) -> Dense:
        """Return the layer that reads parameters in DRAM for each frame."""
        return replace(self, largest_group=1)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags of the schedule, which are in groups of frames."""
        forward, backward = super().lags(parallelism)
        return forward * parallelism.frames, backward * parallelism.frames

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memories of each way.

        With weights in DRAM, the input gradient adds to no ring of rows. Its memories hold the terms of a tile
        of input groups, and the tile's sums.
        """
        schedule, width, frames = self.schedule(parallelism), WORD_BITS * parallelism.pic, parallelism.frames
        tile: tuple[Memory, ...] = ()
        if frames > 1:
            tile = (Memory(width=WORD_BITS * schedule.weight_lanes, depth=prod(schedule.weight_tile)),)
        if storage is Storage.CHIP or not self.gradient:
            return (*super().buffers(parallelism, storage), *tile)
        sent = schedule.features.memories(schedule.input_gradient_rows) if frames > 1 else ()
        return (
            *schedule.memories(Way.FORWARD),
            *schedule.memories(Way.WEIGHT_GRADIENT),
            *schedule.outputs.memories(schedule.output_rows),
            Memory(width=width, depth=schedule.term_rows * schedule.ogs * frames),  # terms
            Memory(width=width, depth=schedule.tile * frames),  # sums
            *sent,  # input gradients, until the group's are complete
            *tile,  # velocities, until all frames have been added
        )

    def schedule(self, parallelism: Parallelism) -> Schedule:
        """Return the schedule of a group of frames: a 1×1 convolution, of which each column is a frame."""
        if parallelism.frames == 1:
            return super().schedule(parallelism)
        return schedule_of(self.grouped(parallelism.frames), parallelism)

    def grouped(self, frames: int) -> Conv:
        """Return the convolution that computes ``frames`` frames at a time."""
        columns = Shape(1, frames, self.input.c)
        return Conv(
            inputs=(columns,),
            kernel=(1, 1),
            stride=(1, 1),
            output_channels=self.output_channels,
            gradient=self.gradient,
        )

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame; those of a group over its frames, rounded up."""
        return ceil_div(super().compute_cycles(parallelism), parallelism.frames)

    @property
    def input(self) -> Shape:
        """Shape of the flattened input."""
        return Shape(1, 1, self.inputs[0].words)

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave: after the input's last position, without the wait for a group's frames."""
        ends = np.repeat(inputs[0][-1:], parallelism.frames)
        return block_outputs(self.schedule(parallelism), ends, ceil_div(self.output.c, parallelism.po))[:1]

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: the whole input is one position."""
        shape = self.inputs[port]
        arrivals = np.repeat(arrivals[-1:], parallelism.frames)
        ready = np.repeat(block_gradients(self.schedule(parallelism), arrivals)[:1], shape.h * shape.w)
        return paced(ready, ceil_div(shape.c, parallelism.pi))

    def channels_first(self, weights: Float32) -> Float32:
        """Return weights as (output, input channel, row, column); the kernel is the whole image."""
        shape = self.inputs[0]
        return super().channels_first(weights.reshape(shape.h, shape.w, shape.c, self.output_channels))
