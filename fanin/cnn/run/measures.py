"""Measures of an epoch: loss and accuracy during training, and accuracy of held-out frames after the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fanin.cnn.run.machine import Labels, Outputs

_LEAST = 2.0**-126  # of a class in the loss: below that, binary32 has nothing but 0


@dataclass(frozen=True)
class Tally:
    """Sums over the frames of an epoch that have been trained: cross-entropy and right guesses.

    Each checkpoint holds the tallies, so that a run resumed within an epoch measures the whole epoch.
    """

    frames: int = 0
    loss: float = 0.0
    right: int = 0

    def plus(self, outputs: Outputs, labels: Labels) -> Tally:
        """Return the tally with more frames added."""
        chosen = outputs[np.arange(len(labels)), labels].astype(np.float64)
        loss = float(-np.log(np.maximum(chosen, _LEAST)).sum())
        return Tally(self.frames + len(labels), self.loss + loss, self.right + right_guesses(outputs, labels))


@dataclass(frozen=True)
class Measures:
    """Mean cross-entropy and share of right guesses of an epoch's frames, each when it was trained on.

    ``accuracy``: share of right guesses of the held-out frames, after the epoch.
    """

    loss: float
    train_accuracy: float
    accuracy: float

    @classmethod
    def of(cls, trained: Tally, tested: Outputs, labels: Labels) -> Measures:
        """Return the measures of a whole epoch, with the outputs for the held-out frames after it."""
        right = right_guesses(tested, labels)
        return cls(trained.loss / trained.frames, trained.right / trained.frames, right / len(labels))


@dataclass(frozen=True)
class Epoch:
    """Measures of an epoch by machine. ``number`` counts from 1; ``rate`` is the learning rate."""

    number: int
    rate: float
    measures: Mapping[str, Measures]


def right_guesses(outputs: Outputs, labels: Labels) -> int:
    """Return the number of frames whose largest output is that of their class."""
    return int((outputs.argmax(axis=1) == labels).sum())
