"""Depthwise convolution (layer kind ``dwconv``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.layer import Parallelism, divisors
from fanin.cnn.layers.window import Pair


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv(Conv):
    """Depthwise convolution: each channel has a filter of its own. Each way has poc × ph multipliers."""

    kind: ClassVar[str] = "dwconv"
    depthwise: ClassVar[bool] = True
    channelwise: ClassVar[bool] = True

    def check(self) -> None:
        """Raise ValueError also if a group has more than one channel."""
        super().check()
        if not self.groups == self.output_channels == self.input.c:
            raise ValueError(f"{self.input.c} channels are not {self.groups} groups of one each")

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every (poc, ph), with the streams of ``with_streams``."""
        for poc, ph in product(divisors(self.input.c), divisors(self.output.w)):
            yield self.with_streams(Parallelism(poc=poc, ph=ph))

    def channel_lanes(self, parallelism: Parallelism) -> Pair:
        """Return the channels of a step, each both an input and an output."""
        return parallelism.poc, parallelism.poc

    def memory_blocks(self, parallelism: Parallelism) -> None:
        """Return None: memory has the array's order, since lanes are groups."""
