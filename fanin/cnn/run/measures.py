"""Loss and accuracy of an epoch: of frames while they are trained on, and of held-out frames afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fanin.cnn.run.machine import Labels, Outputs

_MIN_PROBABILITY = 2.0**-126  # least probability of a class in the loss; the machines flush smaller ones to 0


@dataclass(frozen=True)
class Tally:
    """Sums over an epoch's frames that have been trained on. The fields are keys of a checkpoint's JSON.

    Each checkpoint holds the tallies, so that a run resumed within an epoch measures the whole epoch.
    """

    frames: int = 0  #: number of frames
    loss: float = 0.0  #: sum of their cross-entropies
    right: int = 0  #: number of frames that were classified correctly

    def plus(self, outputs: Outputs, labels: Labels) -> Tally:
        """Return the tally with the frames of ``outputs`` added."""
        probabilities = outputs[np.arange(len(labels)), labels].astype(np.float64)
        loss = float(-np.log(np.maximum(probabilities, _MIN_PROBABILITY)).sum())
        return Tally(self.frames + len(labels), self.loss + loss, self.right + right_guesses(outputs, labels))


@dataclass(frozen=True)
class Measures:
    """Loss and accuracies of an epoch. The fields are keys of run.json."""

    loss: float  #: mean cross-entropy of the epoch's frames, each when it was trained on
    train_accuracy: float  #: share of the epoch's frames that were classified correctly when trained on
    accuracy: float  #: share of the held-out frames that are classified correctly after the epoch

    @classmethod
    def of(cls, tally: Tally, test_outputs: Outputs, labels: Labels) -> Measures:
        """Return the measures of an epoch. ``test_outputs``, ``labels``: those of the held-out frames."""
        right = right_guesses(test_outputs, labels)
        return cls(tally.loss / tally.frames, tally.right / tally.frames, right / len(labels))


@dataclass(frozen=True)
class Epoch:
    """Measures of an epoch on all machines."""

    number: int  #: number of the epoch, from 1
    rate: float  #: learning rate
    measures: Mapping[str, Measures]  #: measures by machine


def right_guesses(outputs: Outputs, labels: Labels) -> int:
    """Return the number of frames whose largest output is that of their label."""
    return int((outputs.argmax(axis=1) == labels).sum())
