"""Base class of the estimators: parameters, checks, continued and early stopped trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fanin import fixed
from fanin.base.errors import InputError
from fanin.fixed import LOSSES, Loss
from fanin.glm.facts import PRESETS
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import Float64
from fanin.sklearn.training import Start, Stopping, Training
from fanin.sklearn.weights import uses

_INPUT = {"accept_sparse": "csr", "dtype": np.float64}
BACKENDS = ("golden", "rtl")
#: Parameters that a continued training cannot change, by the model's attribute.
_KEPT = {"precision": "precision", "frac": "frac", "fit_intercept": "bias"}


class GlmEstimator(BaseEstimator):
    """Base class of both estimators.

    Parameters
    ----------
    ``loss`` : loss function
    ``epochs``, ``batch``, ``lr`` : passes, samples per mini-batch, γ (by default from the samples' curvature)
    ``l2`` : λ of the term ½λ|w|², without the intercept; rounded so that γ·λ is a power of two
    ``precision``, ``frac`` : bits of a feature, fraction bits of a weight
    ``fit_intercept`` : whether there is a constant column
    ``shuffle``, ``random_state`` : shuffle once; an int gives the order of ``fanin train --seed``
    ``warm_start`` : ``fit`` continues the model of the call before
    ``early_stopping`` : hold samples out, and stop when their score no longer improves
    ``validation_fraction`` : share of the samples to hold out
    ``n_iter_no_change``, ``tol`` : epochs without an improvement of ``tol`` that end the training
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
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = 1e-3,
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
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.preset = preset
        self.workers = workers
        self.backend = backend

    _losses: ClassVar[tuple[str, ...]]  #: supported losses; the first one is the default
    model_: GlmModel  #: trained model
    lr_: float  #: γ in use
    n_iter_: int  #: epochs of the last call

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

    @property
    def _continues(self) -> bool:
        """Whether ``fit`` continues the model of the call before."""
        return bool(self.warm_start) and hasattr(self, "model_")

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

    def _check_parameters(self) -> None:
        """Raise ValueError for a parameter that no part of the training checks."""
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {self.backend!r}")
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.epochs}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in (0, 1), not {self.validation_fraction:g}")
        if self.n_iter_no_change < 1:
            raise ValueError(f"n_iter_no_change must be at least 1, not {self.n_iter_no_change}")

    def _start(self, loss: Loss, models: Sequence[GlmModel]) -> Start:
        """Return the models to continue. Raises ValueError for parameters that they contradict."""
        model = models[0]
        if model.loss is not loss:
            raise ValueError(f"loss is {loss.key}, but the model to continue has {model.loss.key}")
        for name, attribute in _KEPT.items():
            ours, theirs = getattr(self, name), getattr(model, attribute)
            if ours != theirs:
                raise ValueError(f"{name} is {ours}, but the model to continue has {theirs}")
        return Start(models, self.lr_)

    def _train(
        self,
        X: Any,
        labels: list[Float64],
        loss: Loss,
        weights: Any = None,
        *,
        start: Start | None,
        once: bool = False,
        strata: Any = None,
    ) -> list[GlmModel]:
        """Train a model per list of labels on the same samples. Raises ValueError for bad parameters.

        - ``weights``: those of the samples, which decide how often each is used.
        - ``start``: models to continue; None: train anew.
        - ``once``: train one epoch, without early stopping.
        - ``strata``: classes of the samples, of which each part of early stopping has its share.
        """
        self._check_parameters()
        order, stopping = np.arange(X.shape[0]), None
        if self.early_stopping and not once:
            order, held_out = self._hold_out(order, strata)
            kept_labels = [model_labels[held_out] for model_labels in labels]
            stopping = Stopping(X[held_out], kept_labels, self.n_iter_no_change, self.tol)
        if weights is not None:
            weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
            order = np.repeat(order, uses(weights[order]))
        if self.shuffle:
            order = order[_generator(self.random_state).permutation(len(order))]
        try:
            epochs = 1 if once else self.epochs
            training = Training(self, X[order], loss, epochs=epochs, start=start, stopping=stopping)
            trained = training.run([model_labels[order] for model_labels in labels])
        except InputError as error:
            raise ValueError(str(error)) from error
        self.lr_, self.n_iter_ = trained.rate, trained.epochs
        return trained.models

    def _hold_out(self, samples: Any, strata: Any) -> tuple[Any, Any]:
        """Return the samples to train on and those to hold out, both in their order. Raises ValueError."""
        state = self.random_state
        parts = train_test_split(
            samples, test_size=self.validation_fraction, stratify=strata, random_state=state
        )
        train, held_out = map(np.sort, parts)
        return train, held_out

    def _check_once(self) -> None:
        """Raise ValueError for parameters that ``partial_fit`` cannot have."""
        if self.early_stopping:
            raise ValueError("early_stopping must be False with partial_fit")

    def _sums(self, X: Any) -> Float64:
        """Return a sum per sample; with more than two classes a column per class."""
        check_is_fitted(self)
        X = _csr(validate_data(self, X, reset=False, **_INPUT))
        sums: Float64 = self.model_.activations(X)[0]
        return sums


def _csr(X: Any) -> Any:
    return sparse.csr_matrix(X) if sparse.issparse(X) else X


def _generator(state: Any) -> Any:
    """Return the random generator; an int gives the order of ``fanin train --seed``."""
    return state if isinstance(state, np.random.RandomState) else np.random.default_rng(state)
