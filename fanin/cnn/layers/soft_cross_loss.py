"""Softmax, and the gradient of its cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, ceil_div, memory

LOSS_INTERVAL = 8  #: cycles an exponential, and a term of their sum
LOSS_PAUSE = 199  #: cycles of a frame besides: of one exponential, the last term and the reciprocal


def levels(lanes: int) -> int:
    """Levels of a balanced tree over ``lanes``."""
    return (lanes - 1).bit_length()


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
