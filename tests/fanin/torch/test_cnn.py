"""The golden model against binary64: outputs, gradients, training; errors relative to a tensor's largest."""

import numpy as np
import pytest
import torch

from fanin.cnn.golden import compiled, layers
from fanin.cnn.golden.folds import tree
from fanin.cnn.golden.network import GoldenNetwork, Trace, initial_state
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.training import Job
from fanin.torch import cnn as float64
from tests.fanin.cnn.golden import cases
from tests.fanin.cnn.golden.cases import CASES
from tests.fanin.cnn.golden.networks import residual
from tests.support import new_seed


def tensors(arrays):
    return [torch.tensor(array, dtype=torch.float64) for array in arrays]


def distance(found, exact):
    """The greatest, relative to the largest of ``exact``."""
    exact = exact.detach().numpy()
    assert found.shape == exact.shape
    return np.max(np.abs(found - exact)) / np.max(np.abs(exact))


@pytest.mark.parametrize(
    "name", [name for name, (layer, _) in CASES.items() if layer.kind not in ("input", "soft_cross_loss")]
)
def test_every_layers_output_and_gradients(name):
    rng = np.random.default_rng(new_seed())
    layer, p = CASES[name]
    state = cases.state(rng, layer)
    if layer.kind == "online_norm":
        state["scale"] = 1 / np.sqrt(state["variance"] + np.float32(layer.epsilon))
    exact = dict(zip(state, tensors(state.values()), strict=True))
    x, dy = cases.inputs(rng, layer), cases.gradient(rng, layer)
    inputs = [part.requires_grad_() for part in tensors(x)]
    if "weights" in exact:
        exact["weights"].requires_grad_()
    y = float64.forward(layer, exact, inputs)
    y.backward(*tensors([dy]))
    made, saved = layers.forward(layer, p, state, x)
    before = state.get("velocity")
    gradients = layers.backward(layer, p, state, saved, dy)
    assert distance(made, y) <= 1e-6
    for dx, part in zip(gradients, inputs, strict=bool(layer.gradient)):
        assert distance(dx, part.grad) <= 1e-6
    if "weights" in exact:
        assert distance(state["velocity"], exact["weights"].grad + exact["velocity"]) <= 1e-6
        assert not np.array_equal(state["velocity"], before)
    if layer.kind == "online_norm":
        for part, array in state.items():
            assert distance(array, exact[part]) <= 1e-5
        assert (
            distance(
                layers.forward(layer, p, state, x, train=False)[0],
                float64.forward(layer, exact, inputs, train=False),
            )
            <= 1e-5
        )


def test_the_losss_gradient():
    rng = np.random.default_rng(new_seed())
    layer, p = CASES["soft_cross_loss"]
    logits = 5 * cases.inputs(rng, layer)[0]
    labels = np.eye(7, dtype=np.float32)[rng.integers(0, 7, len(logits))].reshape(logits.shape)
    made, saved = layers.forward(layer, p, {}, [logits, labels])
    (dx,) = layers.backward(layer, p, {}, saved, None)
    x = tensors([logits])[0].requires_grad_()
    torch.nn.functional.cross_entropy(x.flatten(1), tensors([labels])[0].flatten(1), reduction="sum").backward()
    probabilities = torch.softmax(x.flatten(1), 1).reshape(x.shape)
    assert distance(made, probabilities) <= 1e-6
    # Probability less label: what cancels takes the error of what it was with it.
    scale = torch.max(x.grad.abs()) / torch.max(probabilities)
    assert distance(dx, x.grad) * scale <= 1e-6


def test_online_norm_keeps_to_the_paper_over_many_frames():
    """The same but for rounding, also far from mean 0 and variance 1."""
    rng = np.random.default_rng(new_seed())
    layer = OnlineNorm(inputs=(Shape(4, 4, 3),), forward_decay=0.9, backward_decay=0.8, gradient=True)
    state = layer.zero_state()
    exact = dict(zip(state, tensors(state.values()), strict=True))
    x = (rng.standard_normal((400, 4, 4, 3)) * [0.01, 1, 30] + [0.05, -3, 100]).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    made, saved = compiled.forward(layer, Parallelism(), state, [x])
    (dx,) = compiled.backward(layer, Parallelism(), state, saved, dy)
    inputs = tensors([x])[0].requires_grad_()
    y = float64.forward(layer, exact, [inputs])
    y.backward(*tensors([dy]))
    late = slice(100, None)
    assert distance(made[late], y[late]) <= 1e-5
    assert distance(dx[late], inputs.grad[late]) <= 1e-4


@pytest.mark.parametrize(
    ("image", "frames", "limit"),
    [(Shape(8, 8, 1), 32, 1e-5), (Shape(28, 28, 1), 4, 5e-5), (Shape(32, 32, 3), 4, 1e-4)],
    ids=["digits", "mnist", "32x32"],
)
def test_a_residual_networks_batch(image, frames, limit):
    """``limit``: of a parameter's gradient. The worst is a bias in front of a mean over all positions: it adds
    one word again and again, and is rounded in one direction again and again.

    The seed is fixed: a word that rounding puts on the other side of a relu would be no small error.
    """
    rng = np.random.default_rng(0)
    network = residual(image)
    states = initial_state(network, 0)
    golden, exact = GoldenNetwork(network, states), float64.Float64Network(network, states)
    images = rng.random((frames, image.h, image.w, image.c)).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, frames)]
    trace = Trace(range(frames))
    golden.train(images, labels, Job.of(frames, frames, 0.0, 1.0), trace)
    exact.learn(images, labels, 0.0, 1.0)
    for index, stage in enumerate(network.stages):
        assert distance(trace.outputs[index], exact.outputs[index]) <= 2e-6, stage.name
        gradient = exact.gradients[index]
        sent = [trace.gradients[edge] for edge in network.consumers[index] if edge in trace.gradients]
        if gradient is not None and index != network.loss:
            assert distance(tree(sent), gradient) <= 2e-6, stage.name
        learned = {name: array for name, array in golden.states[index].items() if name != "weights"}
        for name, found in learned.items():
            near = limit if name == "velocity" else 5e-6
            assert distance(found, exact.states[index][name]) <= near, f"{stage.name} {name}"


def test_a_training_stays_near_binary64():
    """Two jobs, short last batches, momentum going on; then evaluation. The seed is fixed as above."""
    rng = np.random.default_rng(0)
    network = residual(first=4, second=6)
    states = initial_state(network, 0)
    golden, exact = GoldenNetwork(network, states), float64.Float64Network(network, states)
    images = rng.random((20, 8, 8, 1)).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 20)]
    for _ in range(2):
        job = Job.of(20, 8, 0.02, 0.9)
        found, expected = golden.train(images, labels, job), exact.train(images, labels, job)
        np.testing.assert_allclose(found, expected, atol=1e-3)
    np.testing.assert_allclose(golden.evaluate(images), exact.evaluate(images), atol=1e-3)
    assert np.abs(golden.states[1]["weights"] - states[1]["weights"]).max() > 1e-3
