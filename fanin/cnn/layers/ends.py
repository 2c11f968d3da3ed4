"""Where frames come from and go to: inputs, the loss, outputs, and the network between devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, Storage, ceil_div, divisors, memory
from fanin.cnn.layers.port import WRITE_QUEUE, read_queue

LOSS_INTERVAL = 8  #: cycles an exponential, and a term of their sum
LOSS_PAUSE = 199  #: cycles of a frame besides: of one exponential, the last term and the reciprocal


def levels(lanes: int) -> int:
    """Levels of a balanced tree over ``lanes``."""
    return (lanes - 1).bit_length()


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


@dataclass(frozen=True, kw_only=True)
class SoftCrossLoss(Layer):
    """Softmax, and the gradient of its cross-entropy with the one-hot labels that are its second input.

    The output is the softmax: the host has the labels, and sees accuracy and loss.
    """

    kind: ClassVar[str] = "soft_cross_loss"

    def check(self) -> None:
        """Raise ValueError where labels and logits differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"logits are {self.inputs[0]}, labels {self.inputs[1]}")

    @property
    def delay(self) -> Fraction:
        """A whole frame: the sum comes last."""
        return Fraction(1)

    def compute_cycles(self, p: Parallelism) -> int:
        """A frame at a time: words come, exponentials are summed one by one, p leaves."""
        rows = ceil_div(self.input.words, p.po)
        return 2 * rows + LOSS_INTERVAL * self.input.words + levels(p.po) + LOSS_PAUSE

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """The logits, and exponentials in their place."""
        return (memory(self.input.words, p.po),)


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


@dataclass(frozen=True, kw_only=True)
class Ingress(Layer):
    """A feature map from another device. ``learns``: its gradient goes back there. ``inputs`` is empty."""

    kind: ClassVar[str] = "ingress"
    inputs: tuple[Shape, ...] = ()
    shape: Shape
    learns: bool

    @property
    def output(self) -> Shape:
        """What the other device sends."""
        return self.shape

    @property
    def trains(self) -> bool:
        """Whether the layer behind it sends a gradient."""
        return self.learns


@dataclass(frozen=True, kw_only=True)
class Egress(Layer):
    """A feature map to another device, whose gradient comes back if ``gradient``."""

    kind: ClassVar[str] = "egress"
