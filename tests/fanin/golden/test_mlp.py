"""The MLP with a stated order of sums: against scalar loops bit for bit, PyTorch, and the C library's exp."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from fanin.golden.mlp import Mlp, Momentum, exp, product

F32 = np.float32


def scalar_product(a, b):
    """By Python's loops, a rounding at each operation."""
    found = np.empty((a.shape[0], b.shape[1]), F32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = F32(a[i, 0] * b[0, j])
            for k in range(1, a.shape[1]):
                total = F32(total + F32(a[i, k] * b[k, j]))
            found[i, j] = total
    return found


def test_product_adds_from_left_to_right():
    rng = np.random.default_rng(1)
    a = rng.normal(0, 10.0 ** rng.integers(-6, 6, (7, 33))).astype(F32)
    b = rng.normal(0, 10.0 ** rng.integers(-6, 6, (33, 5))).astype(F32)
    assert product(a, b).tobytes() == scalar_product(a, b).tobytes()
    assert (product(a, b) != product(a[:, ::-1], b[::-1])).any()  # the order can be seen in the bits


def test_exp_is_within_an_ulp_and_right_at_the_ends():
    x = -np.abs(np.random.default_rng(2).normal(0, 20, 100_000)).astype(F32)
    found, exact = exp(x).astype(np.float64), np.exp(x.astype(np.float64))
    normal = exact > 2.0**-126
    assert np.abs(found[normal] / exact[normal] - 1).max() <= 2.0**-23
    assert exp(np.array([0, -0.0, -1000, -np.inf], F32)).tolist() == [1, 1, 0, 0]
    assert np.isnan(exp(np.array([np.nan], F32))).all()


def torch_gradients(network, parameters, images, labels):
    """By autograd, in binary64."""
    layers = [
        torch.tensor(network.matrix(layer, values).astype(np.float64), requires_grad=True)
        for layer, values in enumerate(parameters)
    ]
    x = torch.tensor(images.astype(np.float64))
    for layer, matrix in enumerate(layers):
        x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1) @ matrix
        x = x.relu() if layer < network.layers - 1 else x
    torch.nn.functional.cross_entropy(x, torch.tensor(labels)).backward()
    return [matrix.grad.numpy().reshape(-1) for matrix in layers]


@pytest.mark.parametrize("widths", [(12, 5), (12, 9, 5), (12, 9, 7, 5)])
def test_gradients_are_pytorchs(widths):
    network, rng = Mlp(widths), np.random.default_rng(3)
    images, labels = rng.normal(0, 1, (16, 12)).astype(F32), rng.integers(0, 5, 16)
    parameters = network.initial(4)
    *inputs, scores = network.forward(parameters, images)
    error = network.output_error(scores, labels)
    expected = torch_gradients(network, parameters, images, labels)
    for layer in reversed(range(network.layers)):
        gradient, error = network.backward(layer, parameters[layer], inputs[layer], error)
        assert gradient.dtype == F32
        np.testing.assert_allclose(gradient, expected[layer], rtol=1e-4, atol=1e-6)


def test_a_nan_does_not_vanish_in_a_relu():
    network = Mlp((2, 2, 2))
    parameters = network.initial(0)
    parameters[0][0] = np.nan
    assert np.isnan(network.forward(parameters, np.ones((1, 2), F32))[-1]).all()


def test_momentum_is_pytorchs():
    rng = np.random.default_rng(5)
    values, velocity = rng.normal(0, 1, 50), np.zeros(50)
    theirs = torch.tensor(values.copy(), requires_grad=True)
    # PyTorch's v is the gradient's side: w -= rate·v, which is the same while the rate does not change.
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(5):
        gradient = rng.normal(0, 1, 50)
        Momentum(0.1, 0.9, 0.01).step(values, velocity, gradient)
        theirs.grad = torch.tensor(gradient)
        optimiser.step()
    np.testing.assert_allclose(values, theirs.detach().numpy(), rtol=1e-12)


def test_layers_are_vectors_whose_last_row_is_the_biases():
    network = Mlp((3, 4, 2))
    assert network.counts == [16, 10]
    for values, (rows, columns) in zip(network.initial(0), pairwise(network.widths), strict=True):
        assert values.size == (rows + 1) * columns
        assert not values[-columns:].any()


@pytest.mark.parametrize("widths", [(5,), (5, 0, 2), ()])
def test_bad_widths(widths):
    with pytest.raises(ValueError, match="at least 2 widths of at least 1"):
        Mlp(widths)
