"""Default learning rates of the bundled sets, and what is said of a loss that does not fall."""

import numpy as np
import pytest

from fanin.fixed import Loss
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.rate import default_rate
from fanin.sim.glm import data
from fanin.sim.glm.result import warning_of

BATCH, EPOCHS, PRECISION = 32, 40, 4


def _warning(source, loss, factor):
    """What is said of a training in float64, which is as good as the nodes' and quicker."""
    read = data.load(source, loss)
    rate = factor * default_rate(read.features, PRECISION, loss)
    run = {"loss": loss, "precision": PRECISION, "batch": BATCH, "rate": rate / BATCH, "epochs": EPOCHS}
    models = [np.zeros(read.features.shape[1]), *train_float64(read.features, read.labels, **run)]
    fas = [metrics.activations_float64(read.features, model, precision=PRECISION) for model in models]
    chance, *losses = (metrics.score(fa, read.labels, loss).loss for fa in fas)
    return warning_of(losses, chance, rate)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("source", data.BUNDLED)
def test_every_loss_of_a_bundled_set_falls_at_the_default_rate(source, loss):
    assert _warning(source, loss, 1) == ""


def test_a_rate_of_32_times_the_default_is_too_large():
    assert "exceeds chance, 0.6931: a --lr below 8 may help" in _warning("digits", Loss.LOGISTIC, 32)


@pytest.mark.parametrize(
    ("losses", "warning"),
    [
        ([0.6, 0.5, 0.4], ""),
        ([0.6, 0.4, 0.45], ""),  # mini-batches leave the loss unsteady
        ([1.0], ""),
        ([0.9, 1.5, 0.3], "the loss of epoch 2, 1.5, exceeds chance, 1: a --lr below 4 may help"),
        ([0.6, 0.2, 0.4], "the loss rises, from 0.2 after epoch 2 to 0.4: a --lr below 4 may help"),
    ],
)
def test_a_loss_above_chance_or_far_above_the_best_is_warned_of(losses, warning):
    assert warning_of(losses, 1.0, 4.0) == warning
