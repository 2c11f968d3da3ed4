"""Classifier of scikit-learn on fanin's nodes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from fanin import fixed
from fanin.glm.golden import metrics
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import Float64
from fanin.sklearn.base import GlmEstimator


class GlmClassifier(ClassifierMixin, GlmEstimator):
    """Logistic regression (``loss`` "logistic", the default) or a linear support vector machine ("hinge").

    More than two classes are trained one against the rest. ``model_`` is the model that ``fanin train`` writes
    for the same samples.
    """

    _losses = ("logistic", "hinge")
    classes_: npt.NDArray[Any]  #: labels of the classes, sorted

    def __init__(
        self,
        *,
        loss: str | None = None,
        epochs: int = 40,
        batch: int = 32,
        lr: float | None = None,
        l2: float = 0.0,
        precision: int = fixed.MAX_PRECISION,
        frac: int = fixed.DEFAULT_FRAC,
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: Any = 0,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = 1e-3,
        preset: str = "demo",
        workers: int = 4,
        backend: str = "golden",
        class_weight: Any = None,
    ):
        super().__init__(
            loss=loss,
            epochs=epochs,
            batch=batch,
            lr=lr,
            l2=l2,
            precision=precision,
            frac=frac,
            fit_intercept=fit_intercept,
            shuffle=shuffle,
            random_state=random_state,
            warm_start=warm_start,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            preset=preset,
            workers=workers,
            backend=backend,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; labels may be numbers or words. Raises ValueError for unsuitable data.

        ``sample_weight`` and ``class_weight`` decide how often a sample is used: docs/reference/sklearn.md.
        With ``warm_start``, a second call continues the model of the first.
        """
        continues = self._continues
        X, y = self._samples(X, y, reset=not continues)
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y has one class, {classes.tolist()[0]!r}: a classifier needs two or more")
        if continues and not np.array_equal(classes, self.classes_):
            ours, theirs = classes.tolist(), self.classes_.tolist()
            raise ValueError(f"warm_start: y has the classes {ours}, but the model to continue has {theirs}")
        self.classes_ = classes
        return self._learn(X, y, sample_weight, continues=continues)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train one epoch on these samples, from the model of the call before. Raises ValueError.

        ``classes``: all classes, required by the first call; it also decides ranges of features and γ.
        """
        self._check_once()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight must not be 'balanced' with partial_fit, which sees a part of the data"
            )
        is_first = not hasattr(self, "model_")
        if is_first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        X, y = self._samples(X, y, reset=is_first)
        check_classification_targets(y)
        known = self.classes_ if classes is None else unique_labels(classes)
        if not is_first and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"classes are {known.tolist()}, but were {self.classes_.tolist()} in the first call"
            )
        if len(known) < 2:
            raise ValueError(f"classes has one class, {known.tolist()[0]!r}: a classifier needs two or more")
        if unknown := np.setdiff1d(y, known).tolist():
            raise ValueError(f"y has the label {unknown[0]!r}, which is none of the classes")
        self.classes_ = known
        return self._learn(X, y, sample_weight, continues=not is_first, once=True)

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, continues: bool, once: bool = False) -> Self:
        """Train a model of two classes, or one per class against the rest."""
        loss = self._loss()
        classes = self.classes_
        positive = classes[1:] if len(classes) == 2 else classes
        if self.class_weight is not None:
            of_class = compute_sample_weight(self.class_weight, y)
            sample_weight = of_class if sample_weight is None else of_class * np.asarray(sample_weight)
        models = self._train(
            X,
            [(y == label).astype(np.float64) for label in positive],
            loss,
            sample_weight,
            start=self._start(loss, self.model_.by_class) if continues else None,
            once=once,
            strata=y,
        )
        self.model_ = GlmModel.of_classes(models, tuple(classes.tolist()))
        return self

    def decision_function(self, X: Any) -> Float64:
        """Return sums of features times weights: above 0 for the larger class; a column per class for more."""
        return self._sums(X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the label of each sample."""
        sums = self._sums(X)
        if len(self.classes_) > 2:
            return self.classes_[np.argmax(sums, axis=1)]
        return self.classes_[metrics.is_larger_class(sums).astype(int)]

    def _linear(self) -> tuple[Float64, Float64]:
        coefficients, intercept = super()._linear()
        return np.atleast_2d(coefficients), np.atleast_1d(intercept)

    @available_if(lambda self: self.loss in (None, "logistic"))
    def predict_log_proba(self, X: Any) -> Float64:
        """Return the logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @available_if(lambda self: self.loss in (None, "logistic"))
    def predict_proba(self, X: Any) -> Float64:
        """Return σ of the sums, a column per class; with more than two classes normalised to a sum of 1."""
        probabilities = expit(self._sums(X))
        if len(self.classes_) == 2:
            return np.column_stack([1 - probabilities, probabilities])
        total = probabilities.sum(axis=1, keepdims=True)
        return np.where(total > 0, probabilities, 1.0) / np.where(total > 0, total, len(self.classes_))
