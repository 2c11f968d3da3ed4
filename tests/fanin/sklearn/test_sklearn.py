"""The estimators: scikit-learn's own checks, the bits of the command, and both backends beside one another."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_regression
from sklearn.ensemble import AdaBoostClassifier, VotingClassifier
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fanin.sklearn import GlmClassifier, GlmRegressor
from fanin.sklearn.weights import uses
from tests.support import new_seed, slow


def expected_failures(estimator):
    """Checks that a stochastic descent fails, as scikit-learn's SGDRegressor does."""
    names = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    reason = "the order of samples decides the weights, and repeated samples are at other places of it"
    return dict.fromkeys(names, reason) if isinstance(estimator, GlmRegressor) else {}


@parametrize_with_checks([GlmRegressor(), GlmClassifier()], expected_failed_checks=expected_failures)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow  # as long as those of the logistic loss
@parametrize_with_checks([GlmClassifier(loss="hinge")])
def test_scikit_learns_own_checks_of_the_hinge_loss(estimator, check):
    check(estimator)


def problem(rng, loss):
    """Samples of an unequal scale, some columns sparse, some samples negative; labels or targets."""
    size = {"n_samples": int(rng.integers(20, 90)), "n_features": int(rng.integers(6, 20))}
    state = int(rng.integers(1 << 31))
    if loss == "linear":
        X, y = make_regression(**size, noise=1.0, random_state=state)
        y += 1000
    else:
        X, y = make_classification(**size, n_informative=3, random_state=state)
    X *= 10.0 ** rng.integers(-3, 4, size["n_features"])
    X[rng.random(X.shape) < 0.3] = 0
    return X, y


def estimator(loss, **options):
    return GlmRegressor(**options) if loss == "linear" else GlmClassifier(loss=loss, **options)


@pytest.mark.verilator
@pytest.mark.parametrize("loss", ["linear", "logistic", "hinge"])
@pytest.mark.parametrize("tries", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("decays", [False, *slow(True)])
def test_emitted_nodes_learn_the_golden_bits(loss, tries, decays):
    rng = np.random.default_rng(new_seed())
    for _ in range(tries):
        X, y = problem(rng, loss)
        how = {"preset": "tiny", "workers": 2, "epochs": 2, "precision": int(rng.integers(1, 9)), "batch": 16}
        how |= {"lr": 0.5, "l2": 0.05} if decays else {}
        golden, rtl = (estimator(loss, backend=backend, **how).fit(X, y) for backend in ("golden", "rtl"))
        assert np.array_equal(golden.model_.weights, rtl.model_.weights)
        assert golden.model_.weights.any()
        assert np.array_equal(golden.predict(X), rtl.predict(X))


@pytest.mark.parametrize("loss", ["linear", "logistic", "hinge"])
def test_l2_shrinks_the_weights_and_is_recorded(loss):
    X, y = problem(np.random.default_rng(new_seed()), loss)
    norms = []
    for l2 in (0.0, 0.02, 0.2):
        model = estimator(loss, lr=0.25, l2=l2).fit(X, y).model_
        assert model.l2 == 0 if l2 == 0 else 2**-0.5 <= model.l2 / l2 <= 2**0.5
        assert model.float64[:-1] * 2**24 == pytest.approx(model.weights[:-1], abs=2**24 * 0.02)
        norms.append(np.linalg.norm(model.weights[:-1]))
    assert norms[0] > norms[1] > norms[2] > 0


def test_sparse_samples_give_the_bits_of_dense_ones():
    rng = np.random.default_rng(new_seed())
    X, y = problem(rng, "logistic")
    dense, thin = (GlmClassifier(epochs=2).fit(of, y) for of in (X, sparse.csr_array(X)))
    assert np.array_equal(dense.model_.weights, thin.model_.weights)
    assert np.array_equal(dense.decision_function(X), thin.decision_function(sparse.csc_matrix(X)))


def test_it_learns_words_in_pipelines_searches_and_pickles():
    cancer = load_breast_cancer()
    words = cancer.target_names[cancer.target]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), GlmClassifier(epochs=5)), {"glmclassifier__precision": [1, 6]}, cv=3
    )
    search.fit(cancer.data, words)
    assert search.best_params_ == {"glmclassifier__precision": 6}
    assert search.score(cancer.data, words) > 0.93
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(cancer.data), search.predict(cancer.data))


def test_more_than_two_classes_go_one_against_the_rest():
    X, y = load_digits(return_X_y=True)
    found = GlmClassifier(epochs=5).fit(X[:1000], y[:1000])
    assert found.model_.weights.shape == (10, 65)
    assert found.score(X[1000:], y[1000:]) > 0.85
    probabilities = found.predict_proba(X[1000:])
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(found.classes_[np.argmax(found.decision_function(X), axis=1)], found.predict(X))
    alone = GlmClassifier(epochs=5).fit(X[:1000], y[:1000] == 3)
    assert np.array_equal(alone.model_.weights, found.model_.weights[3])


def test_targets_of_any_size_are_scaled_to_the_nodes_numbers():
    X, y = make_regression(200, 5, noise=1.0, random_state=1)
    for scale, offset in ((1, 0), (2.0**40, 1e15), (2.0**-40, 3)):
        assert GlmRegressor().fit(X, scale * y + offset).score(X, scale * y + offset) > 0.9
    assert GlmRegressor().fit(X, np.full(200, 7.5)).predict(X).tolist() == [7.5] * 200


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"loss": "linear"}, "loss must be one of logistic, hinge, not 'linear'"),
        ({"backend": "gpu"}, "backend must be one of golden, rtl, not 'gpu'"),
        ({"preset": "huge"}, "preset must be one of tiny, demo"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"batch": 12}, "batch must be a positive multiple of 8, not 12"),
        ({"precision": 9}, "precision must be in 1…8 bits, not 9"),
        ({"workers": 99}, "workers must be in 1…32, not 99"),
        ({"lr": 0.0}, "lr must be at least"),
        ({"frac": 40}, "frac"),
        ({"l2": -1.0}, "l2 must be at least 0 and finite, not -1"),
        ({"l2": 1.0, "lr": 4.0}, "l2 must be 0 or from .* to 0.125 at learning rate 4, not 1"),
    ],
)
def test_bad_parameters_are_refused(options, cause):
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(ValueError, match=cause):
        GlmClassifier(**options).fit(X, y)


@pytest.mark.parametrize("loss", ["linear", "logistic", "hinge"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_of_the_features_as_they_are(loss, fit_intercept):
    """A sum differs by half a step of each feature at most."""
    X, y = problem(np.random.default_rng(new_seed()), loss)
    X[:, 0] = 7.0  # constant: of no weight
    fitted = estimator(loss, epochs=5, fit_intercept=fit_intercept).fit(X, y)
    sums = fitted.predict(X) if loss == "linear" else fitted.decision_function(X)
    assert fitted.coef_.shape == ((X.shape[1],) if loss == "linear" else (1, X.shape[1]))
    linear = X @ np.ravel(fitted.coef_) + np.ravel(fitted.intercept_)
    step = np.abs(np.ravel(fitted.coef_)) * (X.max(axis=0) - X.min(axis=0)) / 2**8
    assert np.abs(linear - sums).max() <= step.sum() / 2 * (1 + 1e-9) + 1e-12 * np.abs(sums).max()
    assert np.ravel(fitted.coef_)[0] == 0
    assert fitted.n_iter_ == 5


def test_classes_have_a_row_of_coefficients_each_and_logarithms_of_probabilities():
    X, y = load_digits(return_X_y=True)
    fitted = GlmClassifier(epochs=2).fit(X[:500], y[:500])
    assert (fitted.coef_.shape, fitted.intercept_.shape) == ((10, 64), (10,))
    linear = X @ fitted.coef_.T + fitted.intercept_
    assert np.abs(linear - fitted.decision_function(X)).max() < 0.05 * np.abs(linear).max()
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))


def test_whole_weights_are_repetitions_and_others_shares_of_the_samples():
    X, y = problem(np.random.default_rng(new_seed()), "logistic")
    weights = np.arange(len(y)) % 3
    plain = {"epochs": 2, "shuffle": False}
    weighted = GlmClassifier(**plain).fit(X, y, sample_weight=weights)
    repeated = GlmClassifier(**plain).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert np.array_equal(weighted.model_.weights, repeated.model_.weights)
    half = uses(np.where(np.arange(100) < 50, 0.25, 0.75))  # a quarter of the draws from the first half
    assert (half.sum(), half[:50].sum(), half[50:].min(), half[50:].max()) == (100, 25, 1, 2)
    equal = GlmClassifier(epochs=2).fit(X, y, sample_weight=np.full(len(y), 0.3))
    assert np.array_equal(equal.model_.weights, GlmClassifier(epochs=2).fit(X, y).model_.weights)
    with pytest.raises(ValueError, match="at least one non-zero number"):
        GlmClassifier().fit(X, y, sample_weight=np.zeros(len(y)))


def test_balanced_classes_find_the_rare_one():
    X, y = make_classification(600, 8, weights=[0.95], class_sep=0.6, random_state=3)
    recalls = [
        recall_score(y, GlmClassifier(epochs=10, class_weight=choice).fit(X, y).predict(X))
        for choice in (None, "balanced", {0: 1, 1: 10})
    ]
    assert recalls[0] < 0.5 < min(recalls[1:])


@pytest.mark.parametrize(
    "meta",
    [
        SelectFromModel(GlmClassifier(epochs=2)),
        RFE(GlmClassifier(epochs=2), n_features_to_select=20, step=0.3),
        AdaBoostClassifier(GlmClassifier(epochs=2), n_estimators=3),
        VotingClassifier(
            [("a", GlmClassifier(epochs=2)), ("b", GlmClassifier(epochs=2, precision=2))], voting="soft"
        ),
    ],
    ids=lambda meta: type(meta).__name__,
)
def test_scikit_learns_meta_estimators_use_it(meta):
    X, y = load_breast_cancer(return_X_y=True)
    if hasattr(meta, "transform") and not hasattr(meta, "voting"):
        assert 1 <= meta.fit(X, y).transform(X).shape[1] <= 20
    else:
        assert meta.fit(X, y).score(X, y) > 0.9


def test_only_the_logistic_loss_has_probabilities():
    assert hasattr(GlmClassifier(), "predict_proba")
    assert not hasattr(GlmClassifier(loss="hinge"), "predict_proba")


def test_one_class_is_none():
    with pytest.raises(ValueError, match="y has one class, 'a'"):
        GlmClassifier().fit(np.zeros((4, 2)), ["a"] * 4)
