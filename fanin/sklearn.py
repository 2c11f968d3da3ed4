"""Estimators of scikit-learn that train bit by bit as fanin's nodes do (docs/reference/sklearn.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fanin import fixed
from fanin.base.errors import InputError
from fanin.fixed import LOSSES, Loss
from fanin.glm.facts import PRESETS, ColumnRule, SparseChoice, TrainShape, check_one_switch, check_precision
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import ColumnRanges, Float64, Samples, quantise
from fanin.glm.golden.rate import default_rate
from fanin.glm.golden.sample_layout import choose_layout
from fanin.glm.golden.targets import TargetScale
from fanin.glm.golden.train import train

Int32 = npt.NDArray[np.int32]

_INPUT = {"accept_sparse": "csr", "dtype": np.float64}
BACKENDS = ("golden", "rtl")
_MOST_USES = 10  # of a sample, on average, with whole numbers as weights


class _Glm(BaseEstimator):
    """Base class of both estimators: parameters, checks, and training.

    Parameters
    ----------
    ``loss`` : loss function
    ``epochs``, ``batch``, ``lr`` : passes, samples per mini-batch, γ (by default as large as curvature permits)
    ``l2`` : λ of the term ½λ|w|², without the intercept; rounded so that γ·λ is a power of two
    ``precision``, ``frac`` : bits of a feature, fraction bits of a weight
    ``fit_intercept`` : whether there is a constant column
    ``shuffle``, ``random_state`` : shuffle once; an int gives the order of ``fanin train --seed``
    ``preset``, ``workers`` : nodes, which determine the largest model and the clamp of sums
    ``backend`` : "golden" (NumPy), or "rtl" (emitted Verilog in simulation) with the same bits
    """

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
        preset: str = "demo",
        workers: int = 4,
        backend: str = "golden",
    ):
        self.loss = loss
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.l2 = l2
        self.precision = precision
        self.frac = frac
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state
        self.preset = preset
        self.workers = workers
        self.backend = backend

    _losses: ClassVar[tuple[str, ...]]  #: supported losses; the first one is the default

    def __sklearn_tags__(self) -> Tags:
        """Declare support of sparse input, which is never made dense in float64."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def coef_(self) -> Float64:
        """Coefficients of the features as they were given; of a classifier a row each, as scikit-learn's."""
        return self._linear()[0]

    @property
    def intercept_(self) -> Float64:
        """Intercept, of a classifier one per row of ``coef_``."""
        return self._linear()[1]

    def _linear(self) -> tuple[Float64, Float64]:
        check_is_fitted(self)
        return self.model_.linear

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a model: ``coef_`` follows from it."""
        return hasattr(self, "model_")

    def _samples(self, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """Return samples checked by scikit-learn; sparse ones as CSR."""
        X, y = validate_data(self, X, y, **_INPUT, **options)
        return _csr(X), y

    def _loss(self) -> Loss:
        """Return the loss. Raises ValueError for a loss that this estimator does not support."""
        name = self._losses[0] if self.loss is None else self.loss
        if name not in self._losses:
            raise ValueError(f"loss must be one of {', '.join(self._losses)}, not {name!r}")
        return LOSSES[name]

    def _train(self, X: Any, labels: list[Float64], loss: Loss, weights: Any = None) -> list[GlmModel]:
        """Train a model per list of labels on the same samples. Raises ValueError for bad parameters.

        ``weights``: those of the samples, which decide how often each is used.
        """
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {self.backend!r}")
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.epochs}")
        order = np.arange(X.shape[0])
        if weights is not None:
            weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
            order = np.repeat(order, _uses(weights))
        if self.shuffle:
            order = order[_generator(self.random_state).permutation(len(order))]
        self.n_iter_ = self.epochs
        try:
            return self._models(X[order], [model_labels[order] for model_labels in labels], loss)
        except InputError as error:
            raise ValueError(str(error)) from error

    def _models(self, X: Any, labels: list[Float64], loss: Loss) -> list[GlmModel]:
        with np.errstate(over="ignore"):
            ranges = ColumnRanges.of(X)
            if not np.isfinite(ranges.high - ranges.low).all():
                raise InputError("a feature spans more than float64 holds")
        check_one_switch(self.workers)
        check_precision(self.precision)
        features = quantise(X, ranges, self.precision, bias=self.fit_intercept)
        layout, placed = choose_layout(
            features,
            node=dataclasses.replace(PRESETS[self.preset], frac=self.frac, l2=self.l2 != 0),
            workers=self.workers,
            batch=self.batch,
            precision=self.precision,
            choice=SparseChoice.AUTO,
            rule=ColumnRule.FREQUENCY,
            is_csr=sparse.issparse(X),
        )
        gamma = default_rate(features, self.precision, loss) if self.lr is None else self.lr
        rate = fixed.rate_of(gamma, self.batch)
        bias = layout.columns - 1 if self.fit_intercept else None
        decay = fixed.decay_of(self.l2, gamma, spared=bias)
        learn = _golden if self.backend == "golden" else _on_nodes(layout.shape)
        return [
            GlmModel(
                loss=loss,
                weights=layout.to_data(
                    learn(
                        placed,
                        fixed.labels(y, loss, self.frac),
                        layout.shape,
                        loss=loss,
                        rate=rate,
                        epochs=self.epochs,
                        decay=layout.decay_on_nodes(decay),
                    )
                ),
                float64=self._float64(features, y, loss, gamma / self.batch, decay),
                ranges=ranges,
                precision=self.precision,
                frac=self.frac,
                bias=self.fit_intercept,
                l2=fixed.l2_of(decay.shift, gamma),
                classes=None,
                columns=(),
                target="",
            )
            for y in labels
        ]

    def _float64(self, features: Samples, y: Float64, loss: Loss, rate: float, decay: fixed.Decay) -> Float64:
        models = train_float64(
            features,
            y,
            loss=loss,
            precision=self.precision,
            batch=self.batch,
            rate=rate,
            epochs=self.epochs,
            decay=decay,
        )
        return list(models)[-1]

    def _sums(self, X: Any) -> Float64:
        """Return a sum per sample; with more than two classes a column per class."""
        check_is_fitted(self)
        X = _csr(validate_data(self, X, reset=False, **_INPUT))
        sums: Float64 = self.model_.activations(X)[0]
        return sums


def _golden(features: Samples, labels: Int32, shape: TrainShape, **run: Any) -> Int32:
    return list(train(features, labels, shape, **run))[-1].model


def _on_nodes(shape: TrainShape) -> Callable[..., Int32]:
    """Return a trainer on simulated nodes, which are built once for all models."""
    from fanin.sim.glm.cosim import Cosim  # Amaranth takes seconds to load

    nodes = Cosim(shape.node, workers=shape.workers, quiet=True)

    def learn(features: Samples, labels: Int32, shape: TrainShape, **run: Any) -> Int32:
        return nodes.train(shape, features, labels, **run).models[-1]

    return learn


def _uses(weights: Float64) -> npt.NDArray[np.int64]:
    """Return how often each sample is used: its weight if all are whole numbers.

    Else as many samples as there are are drawn, at equal steps of the sum of weights. ``weights``: not all 0.
    """
    total = weights.sum()
    if total <= _MOST_USES * len(weights) and np.array_equal(weights, np.floor(weights)):
        return weights.astype(np.int64)
    edges = np.floor(np.cumsum(weights) * (len(weights) / total) + 0.5).astype(np.int64)
    edges[-1] = len(weights)
    return np.diff(edges, prepend=0)


def _csr(X: Any) -> Any:
    return sparse.csr_matrix(X) if sparse.issparse(X) else X


def _generator(state: Any) -> Any:
    """Return the random generator; an int gives the order of ``fanin train --seed``."""
    return state if isinstance(state, np.random.RandomState) else np.random.default_rng(state)


class GlmClassifier(ClassifierMixin, _Glm):
    """Logistic regression (``loss`` "logistic", the default) or a linear support vector machine ("hinge").

    More than two classes are trained one against the rest. ``model_`` is the model that ``fanin train`` writes
    for the same samples.
    """

    _losses = ("logistic", "hinge")

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
            preset=preset,
            workers=workers,
            backend=backend,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; labels may be numbers or words. Raises ValueError for unsuitable data.

        ``sample_weight`` and ``class_weight`` decide how often a sample is used: docs/reference/sklearn.md.
        """
        loss = self._loss()
        X, y = self._samples(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}: a classifier needs two or more")
        positive_codes = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        if self.class_weight is not None:
            of_class = compute_sample_weight(self.class_weight, y)
            sample_weight = of_class if sample_weight is None else of_class * np.asarray(sample_weight)
        labels = [(codes == n).astype(np.float64) for n in positive_codes]
        models = self._train(X, labels, loss, sample_weight)
        self.model_ = GlmModel.of_classes(models, tuple(self.classes_.tolist()))
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


class GlmRegressor(RegressorMixin, _Glm):
    """Least squares. Targets are shifted and scaled by a power of two into [−1, 1], the range of the nodes.

    ``model_`` is the model that ``fanin train --loss linear`` writes for the same samples.
    """

    _losses = ("linear",)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train. Raises ValueError for unsuitable data.

        ``sample_weight`` decides how often a sample is used: docs/reference/sklearn.md.
        """
        loss = self._loss()
        X, y = self._samples(X, y, y_numeric=True)
        y = y.astype(np.float64)
        try:
            scale = TargetScale.of(y)
        except InputError as error:
            raise ValueError(str(error)) from error
        (model,) = self._train(X, [scale.to_sums(y)], loss, sample_weight)
        self.model_ = dataclasses.replace(model, scale=scale)
        return self

    def predict(self, X: Any) -> Float64:
        """Return the prediction for each sample."""
        sums = self._sums(X)  # raises for an estimator that is not fitted
        return self.model_.scale.to_targets(sums)
