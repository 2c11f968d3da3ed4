"""Classification with more than two classes: the joint result of one run per class, each against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin import __version__
from fanin.glm.golden import metrics
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import Samples
from fanin.sim.glm.result import TrainResult, options_json
from fanin.sim.glm.train import Trainer

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassesResult:
    """Result per class, in order; the joint model; and its accuracy on training and test samples."""

    results: list[TrainResult]
    model: GlmModel
    accuracy: float
    test_accuracy: float | None

    @property
    def bit_exact(self) -> bool:
        """True if the models of every class equal the golden models."""
        return all(result.bit_exact for result in self.results)

    @property
    def cycles(self) -> int:
        """Cycles of all runs."""
        return sum(result.cycles for result in self.results)

    @property
    def warning(self) -> str:
        """Warning of the first class whose model is unusable; empty without one."""
        return next((result.warning for result in self.results if result.warning), "")

    def as_json(self) -> dict[str, Any]:
        """Return the result as in ``fanin train --json`` and the top ``run.json``."""
        first = self.results[0]
        return {
            "fanin": __version__,
            "bit_exact": self.bit_exact,
            "classes": self.model.classes,
            "accuracy": self.accuracy,
            "test_accuracy": self.test_accuracy,
            "losses": [result.epochs[-1].loss for result in self.results],
            "cycles": self.cycles,
            "l2": first.l2,
            "decay_shift": first.decay.shift,
            "verilog_sha256": first.verilog_sha256,
            "warning": self.warning or None,
            "options": options_json(first.training),
            **({"layout": first.layout.as_json()} if first.layout and first.layout.reason else {}),
        }


def together(trainers: Sequence[Trainer], results: list[TrainResult]) -> ClassesResult:
    """Return the result of all classes: a sample belongs to the class whose model has the largest sum."""
    datasets = [trainer.dataset for trainer in trainers]
    classes = datasets[0].classes
    assert classes is not None, "there are more than two"
    model = GlmModel.of_classes([result.model for result in results], classes)
    held_out = [dataset.test_labels for dataset in datasets]
    return ClassesResult(
        results=results,
        model=model,
        accuracy=_accuracy(model, datasets[0].features, [dataset.labels for dataset in datasets]),
        test_accuracy=_accuracy(model, datasets[0].test_features, held_out) if len(held_out[0]) else None,
    )


def _accuracy(model: GlmModel, features: Samples, labels: Sequence[npt.NDArray[np.float64]]) -> float:
    """Return the accuracy; ``labels`` marks, for each class, the samples that belong to it."""
    sums = [
        metrics.activations(features, weights, precision=model.precision, frac=model.frac)
        for weights in model.weights
    ]
    predicted: Places = np.argmax(sums, axis=0)
    return float(np.mean(predicted == np.argmax(labels, axis=0)))
