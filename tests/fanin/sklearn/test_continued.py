"""Trainings that continue a model, and those that stop early."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_classification, make_regression
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from fanin.sklearn import GlmClassifier, GlmRegressor
from tests.support import new_seed

ESTIMATORS = [GlmRegressor(), GlmClassifier(), GlmClassifier(loss="hinge", l2=2.0**-6, lr=1.0)]


def samples(estimator, count=80):
    state = int(np.random.default_rng(new_seed()).integers(1 << 31))
    if isinstance(estimator, GlmRegressor):
        return make_regression(count, 6, noise=2.0, random_state=state)
    return make_classification(
        count, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, random_state=state
    )


def same(left, right):
    return np.array_equal(left.model_.weights, right.model_.weights) and np.array_equal(
        left.model_.float64, right.model_.float64
    )


def with_classes(estimator, y):
    return {} if isinstance(estimator, GlmRegressor) else {"classes": np.unique(y)}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_a_warm_start_ends_with_the_bits_of_one_training(estimator):
    X, y = samples(estimator)
    whole = clone(estimator).set_params(epochs=5).fit(X, y)
    warm = clone(estimator).set_params(epochs=2, warm_start=True).fit(X, y)
    first = warm.model_
    assert same(warm.set_params(epochs=3).fit(X, y), whole)
    assert warm.n_iter_ == 3
    assert not np.array_equal(first.weights, warm.model_.weights)
    assert same(clone(estimator).set_params(epochs=5, warm_start=True).fit(X, y), whole)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_an_epoch_each_call_is_partial_fit(estimator):
    X, y = samples(estimator)
    whole = clone(estimator).set_params(epochs=3).fit(X, y)
    parts = clone(estimator)
    for _ in range(3):
        parts.partial_fit(X, y, **with_classes(estimator, y))
    assert same(parts, whole)
    assert (parts.n_iter_, parts.lr_) == (1, whole.lr_)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_ranges_scale_and_rate_are_those_of_the_first_call(estimator):
    X, y = samples(estimator)
    parts = clone(estimator).partial_fit(X, y, **with_classes(estimator, y))
    first, rate = parts.model_, parts.lr_
    targets = 3 * y if isinstance(estimator, GlmRegressor) else y
    parts.partial_fit(5 * X + 1, targets)
    assert np.array_equal(parts.model_.ranges.low, first.ranges.low)
    assert np.array_equal(parts.model_.ranges.high, first.ranges.high)
    assert (parts.model_.scale, parts.lr_) == (first.scale, rate)
    assert not np.array_equal(parts.model_.weights, first.weights)


def test_parts_of_the_data_learn_as_well_as_all_of_it():
    X, y = load_breast_cancer(return_X_y=True)
    X, held_out, y, labels = train_test_split(X, y, stratify=y, random_state=0)
    parts = GlmClassifier()
    for _ in range(20):
        for part in np.array_split(np.arange(len(y)), 3):
            parts.partial_fit(X[part], y[part], classes=[0, 1])
    assert parts.score(held_out, labels) > 0.9


@pytest.mark.verilator
@pytest.mark.parametrize("early_stopping", [False, True])
def test_nodes_continue_with_the_golden_bits(early_stopping):
    X, y = load_iris(return_X_y=True)
    y = np.minimum(y, 1) if early_stopping else y  # one class is found at once
    how = {"preset": "tiny", "workers": 2, "epochs": 6, "warm_start": True, "precision": 4, "lr": 2.0}
    how |= {"early_stopping": early_stopping, "n_iter_no_change": 1, "validation_fraction": 0.2}
    golden, rtl = (GlmClassifier(backend=backend, **how) for backend in ("golden", "rtl"))
    for _ in range(2):
        assert same(golden.fit(X, y), rtl.fit(X, y))
        assert golden.n_iter_ == rtl.n_iter_
    assert (golden.n_iter_ < 6) == early_stopping


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("patience", [1, 3])
def test_it_stops_after_as_many_epochs_without_an_improvement(loss, patience):
    """The rule is computed anew from the scores of trainings of 1, 2, 3… epochs on the same split."""
    X, y = load_digits(return_X_y=True)
    y = y % 2
    how = {"loss": loss, "lr": 1.0, "precision": 4}
    found = GlmClassifier(early_stopping=True, n_iter_no_change=patience, tol=0.002, **how).fit(X, y)
    parts = train_test_split(np.arange(len(y)), test_size=0.1, stratify=y, random_state=0)
    train, held_out = map(np.sort, parts)
    scores, warm = [], GlmClassifier(epochs=1, warm_start=True, **how)
    best = failures = 0
    while failures < patience:
        scores.append(warm.fit(X[train], y[train]).score(X[held_out], y[held_out]))
        failures = failures + 1 if scores[-1] < best + 0.002 else 0
        best = max(best, scores[-1])
    assert found.n_iter_ == len(scores) < 40
    assert same(found, warm)


def test_classes_stop_each_for_itself_and_the_longest_training_counts():
    X, y = load_iris(return_X_y=True)
    how = {"early_stopping": True, "n_iter_no_change": 2}
    whole, epochs = GlmClassifier(**how).fit(X, y), []
    for label, model in enumerate(whole.model_.by_class):
        alone = GlmClassifier(**how)  # of this class against the rest, with the split of all classes
        labels = [(y == label).astype(float)]
        (trained,) = alone._train(X, labels, alone._loss(), start=None, strata=y)
        assert np.array_equal(trained.weights, model.weights)
        epochs.append(alone.n_iter_)
    assert max(epochs) == whole.n_iter_ > min(epochs)


def test_a_regression_stops_by_its_r_squared():
    X, y = make_regression(300, 5, noise=1.0, random_state=0)
    found = GlmRegressor(early_stopping=True, epochs=400).fit(X, y)
    assert 5 < found.n_iter_ < 400
    assert found.score(X, y) > 0.95


def test_names_and_defaults_are_scikit_learns():
    theirs = SGDClassifier().get_params()
    ours = GlmClassifier().get_params()
    names = ("warm_start", "early_stopping", "validation_fraction", "n_iter_no_change", "tol")
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (lambda: GlmClassifier().partial_fit(X, Y), "classes must be passed on the first call to partial_fit"),
        (lambda: GlmClassifier().partial_fit(X, Y, classes=[0, 1]), "y has the label 2, which is none of the"),
        (
            lambda: GlmClassifier().partial_fit(X, Y, classes=[1]),
            "classes has one class, 1: a classifier needs",
        ),
        (
            lambda: GlmClassifier().partial_fit(X, Y, classes=[0, 1, 2]).partial_fit(X, Y, classes=[0, 1]),
            r"classes are \[0, 1\], but were \[0, 1, 2\] in the first call",
        ),
        (
            lambda: GlmClassifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2]),
            "class_weight must not be 'balanced' with partial_fit",
        ),
        (
            lambda: GlmRegressor(early_stopping=True).partial_fit(X, Y),
            "early_stopping must be False with partial_fit",
        ),
        (
            lambda: GlmClassifier(warm_start=True, epochs=1).fit(X, Y).fit(X[:100], Y[:100]),
            r"warm_start: y has the classes \[0, 1\], but the model to continue has \[0, 1, 2\]",
        ),
        (
            lambda: GlmRegressor(epochs=1).fit(X, Y).set_params(precision=4).partial_fit(X, Y),
            "precision is 4, but the model to continue has 8",
        ),
        (
            lambda: GlmClassifier(epochs=1).fit(X, Y).set_params(loss="hinge").partial_fit(X, Y),
            "loss is hinge, but the model to continue has logistic",
        ),
        (
            lambda: GlmRegressor(epochs=1).fit(X, Y).partial_fit(X[:, 1:], Y),
            "X has 3 features, but GlmRegressor is",
        ),
        (
            lambda: GlmRegressor(validation_fraction=1.0).fit(X, Y),
            r"validation_fraction must be in \(0, 1\), not 1",
        ),
        (lambda: GlmRegressor(n_iter_no_change=0).fit(X, Y), "n_iter_no_change must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_continued_is_refused(act, cause):
    with pytest.raises(ValueError, match=cause):
        act()
