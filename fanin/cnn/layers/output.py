"""Results to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, divisors
from fanin.cnn.layers.port import WRITE_QUEUE


@dataclass(frozen=True, kw_only=True)
class Output(Layer):
    """Results to the host."""

    kind: ClassVar[str] = "output"

    def queues(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """What goes to memory."""
        return (WRITE_QUEUE,)

    def store_streams(self, p: Parallelism, storage: Storage) -> tuple[list[int], list[int]]:
        """Results are written."""
        return [], [p.pi]

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every width; nothing computes, so both sides are the same."""
        for lanes in divisors(self.input.c):
            yield Parallelism(pi=lanes, po=lanes)
