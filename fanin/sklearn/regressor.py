"""Regressor of scikit-learn on fanin's nodes."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from fanin.base.errors import InputError
from fanin.glm.golden.quantise import Float64
from fanin.glm.golden.targets import TargetScale
from fanin.sklearn.base import GlmEstimator


class GlmRegressor(RegressorMixin, GlmEstimator):
    """Least squares. Targets are shifted and scaled by a power of two into [−1, 1], the range of the nodes.

    ``model_`` is the model that ``fanin train --loss linear`` writes for the same samples.
    """

    _losses = ("linear",)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train. Raises ValueError for unsuitable data.

        ``sample_weight`` decides how often a sample is used: docs/reference/sklearn.md. With ``warm_start``, a
        second call continues the model of the first.
        """
        return self._learn(X, y, sample_weight, continues=self._continues)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train one epoch on these samples, from the model of the call before. Raises ValueError.

        The first call decides the ranges of features, the scale of targets, and γ.
        """
        self._check_once()
        return self._learn(X, y, sample_weight, continues=hasattr(self, "model_"), once=True)

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, continues: bool, once: bool = False) -> Self:
        loss = self._loss()
        X, y = self._samples(X, y, y_numeric=True, reset=not continues)
        y = y.astype(np.float64)
        try:
            scale = self.model_.scale if continues else TargetScale.of(y)
        except InputError as error:
            raise ValueError(str(error)) from error
        start = self._start(loss, [self.model_]) if continues else None
        (model,) = self._train(X, [scale.to_sums(y)], loss, sample_weight, start=start, once=once)
        self.model_ = dataclasses.replace(model, scale=scale)
        return self

    def predict(self, X: Any) -> Float64:
        """Return the prediction for each sample."""
        sums = self._sums(X)  # raises for an estimator that is not fitted
        return self.model_.scale.to_targets(sums)
