"""Convolutional networks: their flat gradient is the slope of their loss, sample by sample."""

import numpy as np
import pytest

from fanin.sim.learning.convolutional import Convolutions, FlatNetwork, Residual
from fanin.sim.learning.mlp import Samples

CNN = FlatNetwork(Convolutions, channels=3)
RESIDUAL = FlatNetwork(Residual, side=6, classes=5, channels=4)
each_network = pytest.mark.parametrize("network", [CNN, RESIDUAL], ids=["cnn", "residual"])


def _samples(network, count=8):
    rng = np.random.default_rng(2)
    images = rng.standard_normal((count, network.side**2)).astype(np.float32)
    return Samples(images, rng.integers(0, network.classes, count))


def test_parameters_are_those_of_the_layers():
    assert CNN.count == (9 * 3 + 3) + (9 * 3 * 6 + 6) + (6 * 4 * 10 + 10)
    blocks = 3 * 2 * (2 * 4 + 9 * 4 * 4)
    assert RESIDUAL.count == (9 * 4 + 4) + blocks + 2 * 4 + (4 * 9 * 5 + 5)


@each_network
def test_the_gradient_is_the_slope_of_the_loss(network):
    samples = _samples(network)
    vector = network.initial(1).astype(np.float64)
    found = network.gradient(vector, samples)
    assert found.shape == (network.count,)
    for index in np.random.default_rng(0).choice(network.count, 40, replace=False):
        step = np.zeros(network.count)
        step[index] = 1e-6
        slope = (network.loss(vector + step, samples) - network.loss(vector - step, samples)) / 2e-6
        assert found[index] == pytest.approx(slope, rel=1e-4, abs=1e-7)


@each_network
def test_float32_stays_float32_and_the_seed_decides(network):
    vector = network.initial(5)
    before = vector.copy()
    gradient = network.gradient(vector, _samples(network))
    assert vector.dtype == gradient.dtype == np.float32
    assert np.array_equal(vector, before)
    assert np.array_equal(network.gradient(vector, _samples(network)), gradient)
    assert np.array_equal(network.initial(5), before)
    assert not np.array_equal(network.initial(6), before)


@each_network
def test_a_batch_is_the_mean_of_its_samples(network):
    """No statistics of a batch: every sample is normalised on its own."""
    samples, vector = _samples(network), network.initial(0)
    alone = [network.gradient(vector, samples[k : k + 1]) for k in range(len(samples))]
    np.testing.assert_allclose(network.gradient(vector, samples), np.mean(alone, axis=0), atol=1e-6)


@each_network
def test_accuracy_is_the_share_of_samples_with_the_right_label(network):
    samples, vector = _samples(network, 40), network.initial(0)
    shares = [
        network.accuracy(vector, Samples(samples.images, np.full(40, label)))
        for label in range(network.classes)
    ]
    assert sum(shares) == pytest.approx(1)
