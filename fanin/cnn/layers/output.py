"""Sink of results to the host (layer kind ``output``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, divisors
from fanin.cnn.layers.port import WRITE_QUEUE


@dataclass(frozen=True, kw_only=True)
class Output(Layer):
    """Sink of a network's results, which the host reads."""

    kind: ClassVar[str] = "output"
    onnx: ClassVar[str] = "Identity"

    def queues(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the queue of results to memory."""
        return (WRITE_QUEUE,)

    def store_streams(self, parallelism: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Return one stream, which is written."""
        return [], [parallelism.pi]

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every stream width; input and output are equally wide."""
        for lanes in divisors(self.input.c):
            yield Parallelism(pi=lanes, po=lanes)

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return the results."""
        return inputs[0], None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient itself."""
        return (gradient,)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the results."""
        return inputs[0]
