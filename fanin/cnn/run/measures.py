"""What is measured of an epoch: loss and accuracy of its frames when they were trained on, and behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fanin.cnn.run.machine import Labels, Outputs

_LEAST = 2.0**-126  # of a class in the loss: below that, binary32 has nothing but 0


@dataclass(frozen=True)
class Tally:
    """What the frames of an epoch add up to, as far as it has been trained: cross-entropy, and right guesses.

    A state has it beside it, so that a run that goes on in the middle of an epoch measures all of it.
    """

    frames: int = 0
    loss: float = 0.0
    right: int = 0

    def plus(self, outputs: Outputs, labels: Labels) -> Tally:
        """With more frames."""
        chosen = outputs[np.arange(len(labels)), labels].astype(np.float64)
        loss = float(-np.log(np.maximum(chosen, _LEAST)).sum())
        return Tally(self.frames + len(labels), self.loss + loss, self.right + right_guesses(outputs, labels))


@dataclass(frozen=True)
class Measures:
    """Mean cross-entropy and share of right guesses of an epoch's frames, each when it was trained on.

    ``accuracy``: the share of held-out frames behind the epoch.
    """

    loss: float
    train_accuracy: float
    accuracy: float

    @classmethod
    def of(cls, trained: Tally, tested: Outputs, labels: Labels) -> Measures:
        """Of a whole epoch, and of what was made of the held-out frames behind it."""
        right = right_guesses(tested, labels)
        return cls(trained.loss / trained.frames, trained.right / trained.frames, right / len(labels))


@dataclass(frozen=True)
class Epoch:
    """An epoch, counted from 1, and what each machine made of it."""

    number: int
    rate: float
    measures: Mapping[str, Measures]


def right_guesses(outputs: Outputs, labels: Labels) -> int:
    """Frames whose greatest output is that of their class."""
    return int((outputs.argmax(axis=1) == labels).sum())
