"""Frames or labels from the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, Storage, divisors
from fanin.cnn.layers.port import read_queue


@dataclass(frozen=True, kw_only=True)
class Input(Layer):
    """Frames, or labels, from the host. ``inputs`` is empty."""

    kind: ClassVar[str] = "input"
    inputs: tuple[Shape, ...] = ()
    shape: Shape

    @property
    def output(self) -> Shape:
        """What the host sends."""
        return self.shape

    def queues(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """What comes from memory."""
        return (read_queue(p.po),)

    def store_streams(self, p: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Frames are read."""
        return [p.po], []

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every width."""
        for lanes in divisors(self.shape.c):
            yield Parallelism(po=lanes)

    def golden(
        self, k: Kernels, p: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """The host's frames."""
        return inputs[0], None
