"""Layers that take a word and give a word: bias, activations, addition, normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.layers.family import Memory
from fanin.layers.layer import Layer, Parallelism, Storage, memory

NORM_STATE = 9  # words a channel: μ, σ², 1/σ, two sums forward; two control terms and their sums backward


@dataclass(frozen=True, kw_only=True)
class Bias(Layer):
    """Adds a trained word per channel."""

    kind: ClassVar[str] = "bias"

    @property
    def parameters(self) -> int:
        """One per channel."""
        return self.input.c

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """What comes from DRAM stays for the frame, where there is more than one position."""
        again = storage is Storage.DRAM and self.input.h * self.input.w > 1
        return again * self.resident(p)


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """max(x, 0); comparators are LUTs."""

    kind: ClassVar[str] = "relu"

    @property
    def saved(self) -> int:
        """Its output, which says where the gradient passes."""
        return self.output.words if self.gradient else 0


@dataclass(frozen=True, kw_only=True)
class Relu6(Relu):
    """min(max(x, 0), 6)."""

    kind: ClassVar[str] = "relu6"


@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """The sum of two inputs."""

    kind: ClassVar[str] = "add"

    def check(self) -> None:
        """Raise ValueError where the inputs differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"its inputs differ in shape: {' and '.join(map(str, self.inputs))}")


@dataclass(frozen=True, kw_only=True)
class OnlineNorm(Layer):
    """Online normalisation by channel, in place of batch normalisation (Chiley et al., NeurIPS 2019)."""

    kind: ClassVar[str] = "online_norm"

    @property
    def saved(self) -> int:
        """Its output, which the gradient is made of."""
        return self.output.words if self.gradient else 0

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """State of every channel."""
        return (memory(NORM_STATE * self.input.c, p.po),)
