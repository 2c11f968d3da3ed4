"""Sparse nodes in RTL: the golden model's bits for any fill, whatever every link does; their cycles."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.order import frequency_order
from fanin.glm.golden.train import train
from fanin.link import LinkConfig
from fanin.sim.glm.cosim import Cosim
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

NODE = replace(PRESETS["tiny"], engines=2, depth=8, sparse=True)
WORKERS = 2
FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)


@pytest.fixture(scope="module")
def cosim():
    return Cosim(NODE, workers=WORKERS, quiet=True)


def random_samples(rng, samples, columns, precision, fill):
    """Codes of which a share of about ``fill`` is not zero, popular columns more often."""
    popularity = rng.random(columns) ** 2 * 2 * fill if fill < 1 else np.ones(columns)
    codes = rng.integers(1, 1 << precision, (samples, columns))
    return sparse.csr_matrix((codes * (rng.random((samples, columns)) < popularity)).astype(np.uint8))


def check(
    cosim, features, rng, *, batch=16, precision=3, epochs=2, loss=Loss.LOGISTIC, network=None, order=None
):
    """Train in RTL and in the golden model; return the run."""
    size = {"workers": cosim.workers, "engines": cosim.config.engines, "lanes": cosim.config.lanes}
    order = order or frequency_order(np.asarray((features != 0).sum(axis=0)).ravel(), **size)
    samples = features.shape[0]
    shape = TrainShape(
        node=cosim.config,
        workers=cosim.workers,
        samples=samples,
        columns=order.padded,
        batch=batch,
        precision=precision,
    )
    targets = rng.normal(size=samples) if loss is Loss.LINEAR else rng.integers(0, 2, samples)
    labels = fixed.labels(targets, loss, cosim.config.frac)
    options = {"loss": loss, "rate": fixed.learning_rate(0.5 / batch), "epochs": epochs}
    placed = order.permute(features)
    run = cosim.train(shape, placed, labels, **options, network=network)
    golden = [epoch.model for epoch in train(placed, labels, shape, **options)]
    for model, expected in zip(run.models, golden, strict=True):
        np.testing.assert_array_equal(model, expected)
    return run, shape, placed, labels


@pytest.mark.parametrize("fill", [0, 0.1, 1, *slow(0.01, 0.3, 0.7)])
def test_every_fill_gives_the_golden_models_bits(cosim, fill):
    rng = np.random.default_rng(new_seed())
    features = random_samples(rng, 61, 200, 3, fill)
    check(cosim, features, rng)
