"""Training of an estimator's models: set-up of the nodes, epochs, and early stopping."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin import fixed
from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, ColumnRule, SparseChoice, TrainShape, check_one_switch, check_precision
from fanin.glm.golden import metrics
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import ColumnRanges, Float64, Samples, quantise
from fanin.glm.golden.rate import default_rate
from fanin.glm.golden.sample_layout import choose_layout
from fanin.glm.golden.train import train

Int32 = npt.NDArray[np.int32]
#: Yields the model after each epoch.
Learner = Callable[..., Iterator[Int32]]


@dataclass(frozen=True)
class Stopping:
    """Early stopping: the held-out samples, and the rule of scikit-learn's SGDClassifier.

    - ``features``: held-out samples.
    - ``labels``: their labels, a list per model.
    - ``patience``: epochs in a row without an improvement that end the training.
    - ``tolerance``: least increase of the best score that counts as an improvement.
    """

    features: Any
    labels: Sequence[Float64]
    patience: int
    tolerance: float


@dataclass(frozen=True)
class Start:
    """Facts of an estimator's first call that later calls keep, and the models that they continue.

    - ``models``: a model per list of labels.
    - ``rate``: learning rate γ that followed from the samples of the first call.
    """

    models: Sequence[GlmModel]
    rate: float


@dataclass(frozen=True)
class Trained:
    """Models of a call, the learning rate γ in use, and the epochs of the longest training."""

    models: list[GlmModel]
    rate: float
    epochs: int


class Training:
    """Training of the models of one call: samples placed on the nodes, rate, decay. Raises InputError.

    - ``parameters``: the estimator, whose parameters apply.
    - ``X``: samples, in their order.
    - ``start``: models to continue; None: train from models of zeros.
    - ``stopping``: rule that may end a training before ``epochs``.
    """

    def __init__(
        self,
        parameters: Any,
        X: Any,
        loss: Loss,
        *,
        epochs: int,
        start: Start | None,
        stopping: Stopping | None,
    ):
        self._parameters, self._loss, self._epochs = parameters, loss, epochs
        self._start, self._stopping = start, stopping
        check_one_switch(parameters.workers)
        check_precision(parameters.precision)
        self._ranges = start.models[0].ranges if start else _ranges(X)
        self._features = quantise(X, self._ranges, parameters.precision, bias=parameters.fit_intercept)
        self._layout, self._placed = choose_layout(
            self._features,
            node=dataclasses.replace(PRESETS[parameters.preset], frac=parameters.frac, l2=parameters.l2 != 0),
            workers=parameters.workers,
            batch=parameters.batch,
            precision=parameters.precision,
            choice=SparseChoice.AUTO,
            rule=ColumnRule.FREQUENCY,
            is_csr=sparse.issparse(X),
        )
        self.rate = self._gamma()
        bias = self._layout.columns - 1 if parameters.fit_intercept else None
        self._decay = fixed.decay_of(parameters.l2, self.rate, spared=bias)
        step = 1 if stopping else epochs
        self._learn = _golden if parameters.backend == "golden" else _on_nodes(self._layout.shape, step)

    def _gamma(self) -> float:
        """Return γ: the parameter, else that of the first call, else the samples' default."""
        if self._parameters.lr is not None:
            return float(self._parameters.lr)
        if self._start:
            return self._start.rate
        return default_rate(self._features, self._parameters.precision, self._loss)

    def run(self, labels: Sequence[Float64]) -> Trained:
        """Train a model per list of labels. Raises InputError."""
        pairs = [self._train(index, y) for index, y in enumerate(labels)]
        return Trained([model for model, _ in pairs], self.rate, max(epochs for _, epochs in pairs))

    def _train(self, index: int, labels: Float64) -> tuple[GlmModel, int]:
        """Return a model, and its number of epochs."""
        earlier = self._start.models[index] if self._start else None
        model = earlier or self._zeros()
        is_over = _rule(self._stopping, index, model) if self._stopping else None
        epoch = 0
        for nodes, float64 in zip(self._nodes(labels, earlier), self._float64(labels, earlier), strict=True):
            epoch += 1
            model = dataclasses.replace(model, weights=self._layout.to_data(nodes), float64=float64)
            if is_over and is_over(model.weights):
                break
        return dataclasses.replace(model, l2=fixed.l2_of(self._decay.shift, self.rate)), epoch

    def _nodes(self, labels: Float64, earlier: GlmModel | None) -> Iterator[Int32]:
        """Yield the nodes' weights after each epoch."""
        parameters = self._parameters
        return self._learn(
            self._placed,
            fixed.labels(labels, self._loss, parameters.frac),
            self._layout.shape,
            loss=self._loss,
            rate=fixed.rate_of(self.rate, parameters.batch),
            epochs=self._epochs,
            decay=self._layout.decay_on_nodes(self._decay),
            model=self._layout.to_nodes(earlier.weights) if earlier else None,
        )

    def _float64(self, labels: Float64, earlier: GlmModel | None) -> Iterator[Float64]:
        """Yield the weights of the same training in float64 after each epoch."""
        parameters = self._parameters
        return train_float64(
            self._features,
            labels,
            loss=self._loss,
            precision=parameters.precision,
            batch=parameters.batch,
            rate=self.rate / parameters.batch,
            epochs=self._epochs,
            decay=self._decay,
            model=earlier.float64 if earlier else None,
        )

    def _zeros(self) -> GlmModel:
        """Return the model before the first epoch."""
        parameters = self._parameters
        return GlmModel(
            loss=self._loss,
            weights=np.zeros(self._layout.columns, np.int32),
            float64=np.zeros(self._layout.columns),
            ranges=self._ranges,
            precision=parameters.precision,
            frac=parameters.frac,
            bias=parameters.fit_intercept,
            l2=0.0,
            classes=None,
            columns=(),
            target="",
        )


def _ranges(X: Any) -> ColumnRanges:
    with np.errstate(over="ignore"):
        ranges = ColumnRanges.of(X)
        if not np.isfinite(ranges.high - ranges.low).all():
            raise InputError("a feature spans more than float64 holds")
    return ranges


def _rule(stopping: Stopping, index: int, model: GlmModel) -> Callable[[Int32], bool]:
    """Return a function that takes the weights after each epoch, and returns whether the training ends."""
    features = quantise(stopping.features, model.ranges, model.precision, bias=model.bias)
    best, failures = -np.inf, 0

    def is_over(weights: Int32) -> bool:
        nonlocal best, failures
        sums = metrics.activations(features, weights, precision=model.precision, frac=model.frac)
        fit = metrics.score(sums, stopping.labels[index], model.loss).fit
        failures = failures + 1 if fit < best + stopping.tolerance else 0
        best = max(best, fit)
        return failures >= stopping.patience

    return is_over


def _golden(features: Samples, labels: Int32, shape: TrainShape, **run: Any) -> Iterator[Int32]:
    return (epoch.model for epoch in train(features, labels, shape, **run))


def _on_nodes(shape: TrainShape, step: int) -> Learner:
    """Return a trainer on simulated nodes, which are built once for all models.

    ``step``: epochs of a simulation; the next one continues from its model.
    """
    from fanin.sim.glm.cosim import Cosim  # Amaranth takes seconds to load
    from fanin.sim.glm.course import Course

    nodes = Cosim(shape.node, workers=shape.workers, quiet=True)

    def learn(
        features: Samples, labels: Int32, shape: TrainShape, *, epochs: int, model: Int32 | None, **run: Any
    ) -> Iterator[Int32]:
        for first in range(0, epochs, step):
            course, last = Course(first=first, model=model), min(first + step, epochs)
            models = nodes.train(shape, features, labels, epochs=last, course=course, **run).models
            yield from models
            model = models[-1]

    return learn
