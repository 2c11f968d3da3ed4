"""The classifier: its gradient is the slope of its loss, and its training is the recipe of table I."""

import numpy as np
import pytest

from fanin.sim.learning.mlp import Descent, Mlp, Samples, load_digits

SMALL = Mlp(widths=(64, 7, 6, 10))


def _loss(network, vector, samples):
    """Mean cross-entropy in float64, written on its own."""
    x, at = samples.images.astype(np.float64), 0
    for layer, (rows, columns) in enumerate(zip(network.widths, network.widths[1:], strict=False)):
        weights = vector[at : at + rows * columns].reshape(rows, columns)
        biases = vector[at + rows * columns : at + (rows + 1) * columns]
        x, at = x @ weights + biases, at + (rows + 1) * columns
        if layer < len(network.widths) - 2:
            x = np.maximum(x, 0)
    right = x[np.arange(len(samples)), samples.digits]
    return float((np.log(np.exp(x).sum(axis=1)) - right).mean())


def test_the_gradient_is_the_slope_of_the_loss():
    samples = load_digits(0)[0][:20]
    vector = SMALL.initial(3)
    found = SMALL.gradient(vector, samples)
    for index in np.random.default_rng(1).choice(SMALL.count, 60, replace=False):
        step = np.zeros(SMALL.count)
        step[index] = 1e-5
        slope = (_loss(SMALL, vector + step, samples) - _loss(SMALL, vector - step, samples)) / 2e-5
        assert found[index] == pytest.approx(slope, abs=2e-5, rel=2e-3)


def test_the_classifier_has_five_layers_of_which_the_hidden_ones_are_500_wide():
    assert Mlp().count == (64 + 1) * 500 + 3 * (500 + 1) * 500 + (500 + 1) * 10
    assert Mlp().initial(0).dtype == np.float32
    assert np.array_equal(SMALL.initial(5), SMALL.initial(5))
    assert not np.array_equal(SMALL.initial(5), SMALL.initial(6))


def test_digits_are_split_stratified_and_from_0_to_1():
    train, test = load_digits(0)
    assert (len(train), len(test)) == (1347, 450)
    assert train.images.dtype == np.float32
    assert (train.images.min(), train.images.max()) == (0, 1)
    assert np.bincount(test.digits).min() >= 43


def test_accuracy_is_the_share_of_right_guesses():
    network = Mlp(widths=(2, 2))
    identity = np.array([1, 0, 0, 1, 0, 0], dtype=np.float32)
    images = np.array([[3, 1], [1, 3], [5, 0], [0, 5]], dtype=np.float32)
    assert network.accuracy(identity, Samples(images, np.array([0, 1, 0, 0]))) == 0.75


def test_momentum_decay_and_rate_are_applied_as_in_table_i():
    descent = Descent(rate=0.5, reduction=10, reductions=1, momentum=0.5, decay=0.25)
    vector, velocity = np.array([4], np.float32), np.array([2], np.float32)
    descent.step(vector, velocity, np.array([1], np.float32), done=0.0)
    assert velocity[0] == 0.5 * 2 - 0.5 * (1 + 0.25 * 4)
    assert vector[0] == 4 + velocity[0]
    assert [descent.rate_at(done) for done in (0.49, 0.5, 0.99)] == [0.5, 0.05, 0.05]


def test_the_rate_falls_to_a_fifth_each_fifth_of_the_training():
    rates = [Descent().rate_at(k / 10_000) for k in (0, 1_999, 2_000, 4_000, 9_999)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.004, 0.1 / 625])
