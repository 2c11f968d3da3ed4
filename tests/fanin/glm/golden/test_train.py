"""The golden trainers against an independent slow one, against floating point, and against scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier

from fanin import fixed
from fanin.fixed import INT32_MAX, INT32_MIN, Loss
from fanin.glm.facts import GlmConfig, Partitioning, TrainShape
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.train import forward, gradient, train
from fanin.sim.glm import data
from tests.fanin.glm.golden.slow_trainer import SlowTrainer
from tests.support import new_seed, slow

MODES = [Partitioning.MODEL_PARALLEL, Partitioning.DATA_PARALLEL]
NODE = GlmConfig(name="test", lanes=8, depth=64)


def run_both(features, y, *, mode, workers, batch, precision, frac, loss, lr, epochs=3, decay=fixed.NO_DECAY):
    """The epochs of both trainers as ``(model, clamps)``, and how often the slow one's model saturated."""
    node = replace(NODE, frac=frac, mode=mode)
    samples, columns = features.shape
    shape = TrainShape(
        node=node, workers=workers, samples=samples, columns=columns, batch=batch, precision=precision
    )
    rate = fixed.learning_rate(lr / batch)
    labels = fixed.labels(y, loss, frac)
    fast = [
        (epoch.model.tolist(), epoch.clamps)
        for epoch in train(features, labels, shape, loss=loss, rate=rate, epochs=epochs, decay=decay)
    ]
    slow, model, saturations = [], [0] * columns, 0
    for _ in range(epochs):
        trainer = SlowTrainer(
            workers,
            batch,
            precision,
            frac,
            loss.key,
            *rate,
            table=fixed.sigma_table(frac).tolist(),
            data_parallel=mode is Partitioning.DATA_PARALLEL,
            decay=decay.shift,
            spared=decay.spared,
        )
        model = trainer.epoch(model, features.tolist(), labels.tolist())
        slow.append((model, trainer.clamps))
        saturations += trainer.saturations
    return fast, slow, saturations


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("precision", range(1, 9))
def test_every_bit_equals_the_slow_trainer(mode, loss, precision):
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 1 << precision, (21, 11), dtype=np.uint8)
    workers = int(rng.integers(1, 6))
    fast, slow, _ = run_both(
        features,
        rng.integers(0, 2, 21).astype(float),
        mode=mode,
        workers=workers,
        batch=(8 if mode is Partitioning.MODEL_PARALLEL else int(rng.integers(1, 12))) * workers,
        precision=precision,
        frac=int(rng.integers(6, 29)),
        loss=loss,
        lr=float(rng.choice([0.1, 1.0, 30.0])),
    )
    assert fast == slow
    assert any(any(model) for model, _ in fast), "the model never moved"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shift", [1, 3, 12, fixed.MAX_DECAY])
def test_weights_that_decay_equal_the_slow_trainers(mode, shift):
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 16, (53, 7), dtype=np.uint8)
    y = rng.integers(0, 2, 53).astype(float)
    settings = {"workers": 2, "batch": 16, "precision": 4, "frac": 24, "loss": Loss.LOGISTIC, "lr": 5.0}
    decay = fixed.Decay(shift, spared=6)
    fast, slow, _ = run_both(features, y, mode=mode, **settings, decay=decay)
    assert fast == slow
    plain, _, _ = run_both(features, y, mode=mode, **settings)
    assert fast != plain


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [1, 2, 8, 32])
def test_clamps_and_saturation_equal_the_slow_trainer(mode, workers):
    rng = np.random.default_rng(new_seed())
    samples = 8 * workers + 3  # the last mini-batch is short
    features = rng.integers(0, 16, (samples, 7), dtype=np.uint8)
    fast, slow, saturations = run_both(
        features,
        rng.uniform(32, 127, samples),  # all push the same way
        mode=mode,
        workers=workers,
        batch=8 * workers,
        precision=4,
        frac=24,
        loss=Loss.LINEAR,
        lr=32.0 * workers,
        epochs=4,
    )
    assert fast == slow
    assert sum(clamps for _, clamps in fast) > 0
    assert saturations > 0


def test_the_model_saturates_once_per_micro_batch_not_once_per_mini_batch():
    """Micro-batch 0 pushes the weight over the top, micro-batch 1 pulls it back: the excess is lost."""
    features = np.full((16, 1), 8, dtype=np.uint8)  # ½
    y = np.array([40.0] * 8 + [-40.0] * 8)
    common = {
        "workers": 1,
        "batch": 16,
        "precision": 4,
        "frac": 24,
        "loss": Loss.LINEAR,
        "lr": 16.0,
        "epochs": 1,
    }
    fast, slow, saturations = run_both(features, y, mode=Partitioning.MODEL_PARALLEL, **common)
    assert fast == slow
    assert fast[0][0] == [INT32_MAX - (160 << 24)]
    assert saturations == 1
    at_once, *_ = run_both(features, y, mode=Partitioning.DATA_PARALLEL, **common)
    assert at_once[0][0] == [0]


def test_forward_and_gradient_are_exact_where_the_sums_are_largest():
    columns = 10_000
    for value, rounded in ((INT32_MIN, INT32_MIN), (INT32_MAX, INT32_MAX)):
        features = np.full((2, columns), 255, dtype=np.uint8)
        one = sum(rounded >> j for j in range(1, 9))
        assert forward(features, np.full(columns, value), 8).tolist() == [columns * one] * 2
        assert gradient(features, np.array([value, value]), 8).tolist() == [2 * one] * columns


def test_forward_is_exact_across_column_blocks():
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 32, (3, 9001), dtype=np.uint8)
    model = rng.integers(INT32_MIN, INT32_MAX, 9001)
    want = [int(fixed.bit_serial(row, model, 5).sum()) for row in features]
    assert forward(features, model, 5).tolist() == want


def test_absent_samples_contribute_nothing():
    """Eight zero samples more, whatever their labels, leave the model as it is."""
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 16, (13, 6), dtype=np.uint8)
    y = rng.integers(0, 2, 13).astype(float)
    settings = {"workers": 2, "batch": 16, "precision": 4, "frac": 24, "loss": Loss.LOGISTIC, "lr": 4.0}
    short, *_ = run_both(features, y, mode=Partitioning.MODEL_PARALLEL, **settings)
    padded = np.concatenate([features, np.zeros((3, 6), dtype=np.uint8)])
    full, *_ = run_both(padded, np.concatenate([y, [0, 1, 0]]), mode=Partitioning.MODEL_PARALLEL, **settings)
    assert short == full


def test_modes_agree_on_a_batch_of_one_micro_batch_on_one_worker():
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 16, (24, 6), dtype=np.uint8)
    y = rng.integers(0, 2, 24).astype(float)
    settings = {"workers": 1, "batch": 8, "precision": 4, "frac": 24, "loss": Loss.LOGISTIC, "lr": 1.0}
    (a, *_), (b, *_) = (run_both(features, y, mode=mode, **settings) for mode in MODES)
    assert a == b


def test_a_data_set_of_another_shape_is_refused():
    shape = TrainShape(node=NODE, workers=1, samples=9, columns=3, batch=8)
    rate = fixed.learning_rate(0.1)
    with pytest.raises(ValueError, match=r"features must be \(9, 3\) with as many labels, not \(8, 3\)"):
        next(
            train(
                np.zeros((8, 3), np.uint8), np.zeros(8, np.int32), shape, loss=Loss.LINEAR, rate=rate, epochs=1
            )
        )


def trained(dataset, loss, *, lr, epochs, workers=4, batch=64):
    """Final integer and float64 models."""
    shape = TrainShape(
        node=GlmConfig(name="test"),
        workers=workers,
        samples=len(dataset.labels),
        columns=dataset.features.shape[1],
        batch=batch,
        precision=dataset.precision,
    )
    labels = fixed.labels(dataset.labels, loss, shape.node.frac)
    rate = fixed.learning_rate(lr / batch)
    *_, golden = train(dataset.features, labels, shape, loss=loss, rate=rate, epochs=epochs)
    *_, floating = train_float64(
        dataset.features,
        dataset.labels,
        loss=loss,
        precision=dataset.precision,
        batch=batch,
        rate=lr / batch,
        epochs=epochs,
    )
    return golden.model, floating


@pytest.mark.parametrize(("loss", "lr"), [(Loss.LINEAR, 0.05), (Loss.LOGISTIC, 1.0), (Loss.HINGE, 0.2)])
@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_fixed_point_training_follows_floating_point(name, loss, lr):
    dataset = data.load(name, loss)
    model, floating = trained(dataset, loss, lr=lr, epochs=5)
    fa = metrics.activations(dataset.features, model, precision=4, frac=24)
    fixed_score = metrics.score(fa, dataset.labels, loss)
    fa = metrics.activations_float64(dataset.features, floating, precision=4)
    float_score = metrics.score(fa, dataset.labels, loss)
    assert fixed_score.loss == pytest.approx(float_score.loss, rel=5e-3)
    assert fixed_score.fit == pytest.approx(float_score.fit, abs=0.01)


@pytest.mark.parametrize("name", ["breast_cancer", *slow("digits")])
def test_accuracy_is_that_of_scikit_learn_on_the_same_samples(name):
    dataset = data.load(name, Loss.LOGISTIC)
    model, _ = trained(dataset, Loss.LOGISTIC, lr=4.0, epochs=60)
    fa = metrics.activations(dataset.test_features, model, precision=4, frac=24)
    ours = metrics.score(fa, dataset.test_labels, Loss.LOGISTIC).fit
    peers = LogisticRegression(max_iter=5000), SGDClassifier(loss="log_loss", random_state=0)
    for peer in peers:
        peer.fit(dataset.features / 16, dataset.labels)
        assert ours >= peer.score(dataset.test_features / 16, dataset.test_labels) - 0.03


@pytest.mark.parametrize(("loss", "gamma"), [(Loss.LINEAR, 0.25), (Loss.LOGISTIC, 4.0)])
def test_the_minimum_is_scikit_learns(loss, gamma):
    """Logistic regression with C = 1/(λ·n), ridge regression with α = λ·n, neither of which shrinks a bias."""
    rng = np.random.default_rng(new_seed())
    n, columns, precision = 40, 5, 4
    features = rng.integers(0, 1 << precision, (n, columns), dtype=np.uint8)
    features[:, -1] = 15  # the bias
    y = (features[:, 0] + rng.normal(0, 4, n) > 8).astype(float)
    shape = TrainShape(node=NODE, workers=1, samples=n, columns=columns, batch=n, precision=precision)
    decay = fixed.decay_of(2.0**-5 / gamma, gamma, spared=columns - 1)
    run = {"loss": loss, "epochs": 1500, "decay": decay}
    rate = fixed.learning_rate(gamma / n)
    *_, golden = train(features, fixed.labels(y, loss, NODE.frac), shape, rate=rate, **run)
    *_, floating = train_float64(features, y, precision=precision, batch=n, rate=gamma / n, **run)

    l2 = fixed.l2_of(decay.shift, gamma)
    peer = Ridge(alpha=l2 * n) if loss is Loss.LINEAR else LogisticRegression(C=1 / (l2 * n), tol=1e-9)
    peer.fit(features[:, :-1] / 16, y)
    theirs = [*np.ravel(peer.coef_), np.ravel(peer.intercept_)[0] / (15 / 16)]
    assert floating == pytest.approx(theirs, abs=1e-4)
    assert np.ldexp(golden.model.astype(float), -NODE.frac) == pytest.approx(theirs, abs=1e-3)


def test_the_worked_example_of_the_documentation():
    features = np.array([[0, 3], [3, 3]], dtype=np.uint8)
    fast, slow, _ = run_both(
        features,
        np.array([1.0, -0.5]),
        mode=Partitioning.MODEL_PARALLEL,
        workers=1,
        batch=8,
        precision=2,
        frac=6,
        loss=Loss.LINEAR,
        lr=4.0,
        epochs=2,
    )
    assert fast == slow == [([-12, 12], 0), ([-24, 21], 0)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", [1, 4, 8])
def test_sparse_samples_train_the_same_bits(mode, precision):
    """With clamps, decay, samples and columns without entries."""
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 1 << precision, (45, 23), dtype=np.uint8)
    features[rng.random(features.shape) < 0.7] = 0
    features[[3, 16]] = features[:, 5] = 0
    shape = TrainShape(
        node=replace(NODE, mode=mode), workers=3, samples=45, columns=23, batch=24, precision=precision
    )
    labels = fixed.labels(rng.uniform(32, 127, 45), Loss.LINEAR, NODE.frac)
    run = {
        "loss": Loss.LINEAR,
        "rate": fixed.learning_rate(4.0),
        "epochs": 3,
        "decay": fixed.Decay(4, spared=22),
    }
    dense = list(train(features, labels, shape, **run))
    sparse = list(train(csr_matrix(features), labels, shape, **run))
    assert [epoch.clamps for epoch in dense] == [epoch.clamps for epoch in sparse]
    assert [epoch.model.tolist() for epoch in dense] == [epoch.model.tolist() for epoch in sparse]
    assert sum(epoch.clamps for epoch in dense) > 0
    how = {"precision": precision, "frac": NODE.frac}
    ours, theirs = (
        metrics.activations(some, dense[-1].model, **how) for some in (features, csr_matrix(features))
    )
    assert ours.tolist() == theirs.tolist()


def test_sparse_samples_train_float64_as_near():
    rng = np.random.default_rng(new_seed())
    features = rng.integers(0, 16, (40, 9), dtype=np.uint8) * (rng.random((40, 9)) < 0.4).astype(np.uint8)
    y = rng.integers(0, 2, 40).astype(float)
    run = {"loss": Loss.LOGISTIC, "precision": 4, "batch": 16, "rate": 0.05, "epochs": 3}
    *_, dense = train_float64(features, y, **run)
    *_, sparse = train_float64(csr_matrix(features), y, **run)
    np.testing.assert_allclose(sparse, dense, rtol=1e-12, atol=1e-14)
