"""Source of frames or labels from the host (layer kind ``input``)."""

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
    """Source of the host's frames or labels.

    ``inputs``: empty.
    ``shape``: shape of a frame.
    """

    kind: ClassVar[str] = "input"
    inputs: tuple[Shape, ...] = ()
    shape: Shape

    @property
    def output(self) -> Shape:
        """Shape of the host's frames."""
        return self.shape

    def queues(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the queue of frames from memory."""
        return (read_queue(parallelism.po),)

    def store_streams(self, parallelism: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Return one stream, which is read."""
        return [parallelism.po], []

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every width."""
        for lanes in divisors(self.shape.c):
            yield Parallelism(po=lanes)

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return the host's frames."""
        return inputs[0], None
