"""The three workloads: gradients beside PyTorch's, the optimum beside scikit-learn's, features' kernel."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fanin.sim.learning.learner import Training
from fanin.sim.learning.mlp import Samples
from fanin.sim.learning.workloads import MODELS, RandomFeatures, build, load
from tests.support import new_seed

FEATURES = 50


def _build(model, **fields):
    return build(model, load(None, 0), features=FEATURES, **fields)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_and_loss_are_those_of_autograd(model, dtype):
    work = _build(model, decay=0.03, dtype=dtype)
    rng = np.random.default_rng(new_seed())
    w = (0.3 * rng.standard_normal(work.network.count)).astype(dtype)
    samples = work.train[rng.choice(len(work.train), 8, replace=False)]
    flat = torch.tensor(w, requires_grad=True)
    x, at = torch.tensor(samples.images), 0
    for layer, (rows, columns) in enumerate(zip(work.network.widths, work.network.widths[1:], strict=False)):
        matrix = flat[at : at + rows * columns].reshape(rows, columns)
        at += (rows + 1) * columns
        x = (torch.relu(x) if layer else x) @ matrix + flat[at - columns : at]
    loss = torch.nn.functional.cross_entropy(x, torch.tensor(samples.digits)) + 0.015 * flat @ flat
    loss.backward()
    found = work.gradient(w, samples)
    assert found.dtype == dtype
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(found, flat.grad.numpy(), **tolerance)
    assert work.loss(w, samples) == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.slow
def test_the_optimum_is_scikit_learns():
    """Which leaves biases undecayed; so they are one more column here."""
    work = _build("lr", decay=0.01)
    images = np.hstack([work.train.images, np.ones((len(work.train), 1))])
    model = LogisticRegression(C=1 / (0.01 * len(images)), fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(images, work.train.digits)
    np.testing.assert_allclose(work.optimum.reshape(65, 10), model.coef_.T, atol=2e-5)
    assert np.linalg.norm(work.gradient(work.optimum, work.train)) < 1e-6


def test_only_a_convex_loss_with_decay_has_an_optimum():
    for work in (_build("fcnn", decay=0.1), _build("lr")):
        with pytest.raises(ValueError, match="only a convex loss with decay has one optimum"):
            _ = work.optimum


def test_random_features_approximate_the_gaussian_kernel():
    rng = np.random.default_rng(new_seed())
    images = rng.uniform(0, 1, (20, 16))
    features = RandomFeatures(inputs=16, count=40_000, gamma=0.3, seed=1)(images)
    distances = ((images[:, None] - images[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(features @ features.T, np.exp(-0.3 * distances), atol=0.04)


def test_shapes_are_the_papers():
    """Table 1: 64 KB, 800 KB, 800 KB in float64."""
    pictures = Samples(np.zeros((30, 784), np.float32), np.arange(30) % 10)
    sizes = {model: build(model, (pictures, pictures)).network.count * 8 / 1000 for model in MODELS}
    assert sizes == pytest.approx({"lr": 62.8, "lr-rff": 800.1, "fcnn": 814.2}, abs=0.1)


def test_convex_models_start_at_0_and_the_network_with_kaimings_variance():
    assert not _build("lr").initial(0).any()
    work = _build("fcnn")
    w = work.initial(3)
    assert w.dtype == np.float64
    assert np.std(w[: 64 * 128]) == pytest.approx((2 / 64) ** 0.5, rel=0.05)
    assert not w[64 * 128 : 65 * 128].any()
    assert np.array_equal(w, work.initial(3))
    assert not np.array_equal(w, work.initial(4))


@pytest.mark.parametrize(
    ("model", "fields", "match"),
    [
        ("svm", {}, "model must be one of lr, lr-rff, fcnn, not 'svm'"),
        ("lr-rff", {"features": 0}, "features must be at least 1, not 0"),
        ("lr", {"dtype": np.float16}, "dtype must be float32 or float64, not float16"),
    ],
)
def test_what_cannot_be_built_is_refused(model, fields, match):
    with pytest.raises(ValueError, match=match):
        build(model, load(None, 0), **fields)


def test_workers_scan_disjoint_shares_in_one_order_every_epoch():
    work = _build("lr")
    training = Training(work, workers=15, batch=8, seed=5)
    assert training.batches == 11
    w = np.zeros(training.parameters)
    each = [[training.gradient(n, k, w) for k in range(11)] for n in range(15)]
    assert all(np.array_equal(training.gradient(3, k + 11, w), each[3][k]) for k in range(11))
    order = np.random.default_rng(5).permutation(len(work.train))
    used = np.concatenate([share[:88] for share in np.array_split(order, 15)])
    expected = work.gradient(w, work.train[used])
    np.testing.assert_allclose(np.mean(each, axis=(0, 1)), expected, atol=1e-12)


def test_a_batch_beyond_a_workers_share_is_refused():
    for batch in (0, 90):
        with pytest.raises(
            ValueError, match=f"batch must be 1 to 89, a worker's share of 1347 .*, not {batch}"
        ):
            Training(_build("lr"), workers=15, batch=batch, seed=0)
    with pytest.raises(ValueError, match="workers must be 1 to 1347, the number of samples, not 1348"):
        Training(_build("lr"), workers=1348, batch=1, seed=0)


def test_measures_are_0_at_the_optimum_and_the_convex_models_alone_have_them():
    work = _build("lr", decay=0.01)
    training = Training(work, workers=3, batch=8, seed=0)
    best, first = training.measure(work.optimum), training.measure(training.initial())
    assert best.convergence.distance == best.convergence.loss_gap == 0
    assert best.convergence.gradient_norm < 1e-6
    assert first.loss == pytest.approx(np.log(10))
    assert first.convergence.loss_gap == pytest.approx(first.loss - best.loss)
    assert first.convergence.distance == pytest.approx(np.linalg.norm(work.optimum))
    assert best.accuracy == work.network.accuracy(work.optimum, work.test) > 0.9
    network = Training(_build("fcnn"), workers=3, batch=8, seed=0)
    assert network.measure(network.initial()).convergence is None
