"""Data-parallel training of an MLP: N replicas of one model, each with a share of the samples.

A replica runs its backward pass layer by layer, so that a layer's gradient can be exchanged while the next one
is computed. The user of this module chooses the exchange and its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.golden.mlp import Floats, Mlp, Momentum
from fanin.sim.learning.learner import Measures, Shards
from fanin.sim.learning.mlp import Samples, classes_of


@dataclass(frozen=True, kw_only=True)
class DataParallel:
    """A training job: model, number of nodes, and hyper-parameters.

    - ``nodes``, ``batch``, ``epochs``: at least 1; ``batch`` counts the samples of one node's mini-batch.
    - ``rate``: learning rate, above 0.
    - ``momentum``: at least 0 and below 1.
    - ``decay``: weight decay, at least 0.
    - ``seed``: of the initial parameters and of the order of samples.

    Raises ValueError that names parameter, value and limit.
    """

    network: Mlp
    nodes: int
    batch: int = 32
    epochs: int = 1
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "batch", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if not self.rate > 0:
            raise ValueError(f"rate must be above 0, not {self.rate!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {self.momentum!r}")
        if not self.decay >= 0:
            raise ValueError(f"decay must be at least 0, not {self.decay!r}")

    @property
    def descent(self) -> Momentum:
        """Update rule."""
        return Momentum(self.rate, self.momentum, self.decay)


class Dataset:
    """Training samples, with a share for each node, and test samples.

    Raises ValueError if the network does not fit the samples, or a node's share is less than a batch.
    """

    def __init__(self, job: DataParallel, train: Samples, test: Samples):
        widths = job.network.widths
        features, classes = train.images.shape[1], classes_of(train, test)
        if widths[0] != features:
            raise ValueError(f"layers must begin with the data's {features} features, not {widths[0]}")
        if widths[-1] < classes:
            raise ValueError(f"layers must end with at least the data's {classes} classes, not {widths[-1]}")
        self.train, self.test = train, test
        self.shards = Shards(train, workers=job.nodes, batch=job.batch, seed=job.seed)

    @property
    def steps(self) -> int:
        """Mini-batches per node and epoch."""
        return self.shards.batches


@dataclass
class State:
    """State to resume from: parameters and velocities, a vector per layer, after ``step`` steps."""

    parameters: list[Floats]
    velocities: list[Floats]
    step: int = 0

    @classmethod
    def initial(cls, job: DataParallel, kind: type[np.floating[Any]] = np.float32) -> State:
        """Return the initial state, by the job's seed; binary64 begins with the same values as binary32."""
        parameters = [values.astype(kind) for values in job.network.initial(job.seed)]
        return cls(parameters, [np.zeros_like(values) for values in parameters])

    def copy(self) -> State:
        """Return a copy that shares no memory with this state."""
        return State(
            [vector.copy() for vector in self.parameters],
            [vector.copy() for vector in self.velocities],
            self.step,
        )

    def equals(self, other: State) -> bool:
        """Return whether both are equal bit for bit."""
        return self.step == other.step and all(
            vector.tobytes() == other_vector.tobytes()
            for vector, other_vector in zip(
                self.parameters + self.velocities, other.parameters + other.velocities, strict=True
            )
        )


def _without_warnings() -> np.errstate:
    """Return a context without NumPy's warnings of a diverging model, which ``Replica.backward`` reports."""
    return np.errstate(over="ignore", invalid="ignore")


class Replica:
    """One node's model and training steps.

    A step calls ``forward``, then ``backward`` of each layer, the last one first, ``update`` of each layer, and
    ``end_step``. A layer may be updated as soon as its own backward pass is finished, because the layer before
    it does not need its weights.
    """

    def __init__(self, job: DataParallel, data: Dataset, node: int, state: State):
        self.job, self.data, self.node, self.state = job, data, node, state
        self._inputs: list[Floats] = []
        self._error: Floats = np.zeros(0)

    def forward(self) -> None:
        """Run the forward pass of the next mini-batch."""
        samples, network = self.data.shards(self.node, self.state.step), self.job.network
        with _without_warnings():
            *self._inputs, scores = network.forward(self.state.parameters, samples.images)
            self._error = network.output_error(scores, samples.digits)

    def backward(self, layer: int) -> Floats:
        """Return the layer's gradient of this node's samples. Raises CheckFailed unless it is finite."""
        parameters = self.state.parameters[layer]
        inputs, network = self._inputs[layer], self.job.network
        with _without_warnings():
            gradient, self._error = network.backward(layer, parameters, inputs, self._error)
        if not np.isfinite(gradient).all():
            place = f"node {self.node}, layer {layer}, step {self.state.step}"
            raise CheckFailed(f"{place}: the gradient has values that are not finite; choose a smaller --lr")
        return gradient

    def update(self, layer: int, total: Floats) -> None:
        """Update a layer with the mean of all nodes' gradients, given their sum."""
        mean = total / total.dtype.type(self.job.nodes)
        with _without_warnings():
            self.job.descent.step(self.state.parameters[layer], self.state.velocities[layer], mean)

    def end_step(self) -> None:
        """End the step, after all layers are updated."""
        self.state.step += 1


def measure(job: DataParallel, data: Dataset, parameters: Sequence[Floats]) -> Measures:
    """Return the accuracies on training and test samples, and the mean loss of the training samples."""
    accuracies = []
    for samples in data.train, data.test:
        with _without_warnings():
            scores = job.network.forward(parameters, samples.images)[-1]
        accuracies.append(float((scores.argmax(axis=1) == samples.digits).mean()))
        if samples is data.train:
            loss = _cross_entropy(scores, samples.digits)
    train_accuracy, test_accuracy = accuracies
    return Measures(train_accuracy, test_accuracy, loss)


def _cross_entropy(scores: Floats, labels: npt.NDArray[np.int64]) -> float:
    scores64 = scores.astype(np.float64)
    highest = scores64.max(axis=1)
    total = np.log(np.exp(scores64 - highest[:, None]).sum(axis=1)) + highest
    return float((total - scores64[np.arange(len(labels)), labels]).mean())


#: Function that adds up the nodes' vectors.
Exchange = Callable[[Sequence[Floats]], Floats]


def train(
    job: DataParallel,
    data: Dataset,
    exchange: Exchange,
    *,
    kind: type[np.floating[Any]] = np.float32,
    state: State | None = None,
    single_vector: bool = False,
    on_epoch: Callable[[State], None] = lambda state: None,
) -> State:
    """Train in NumPy, without time, and return the last state. ``exchange`` adds up the nodes' gradients.

    Hardware results are compared with this training. All replicas share one state, since they are equal after
    every step.

    - ``kind``: binary32 or binary64.
    - ``state``: state to continue from, which is not changed.
    - ``single_vector``: exchange the gradients of all layers as one vector, instead of layer by layer.
    - ``on_epoch``: called with the state after each epoch.

    Raises CheckFailed as ``Replica.backward``.
    """
    state = state.copy() if state else State.initial(job, kind)
    replicas = [Replica(job, data, node, state) for node in range(job.nodes)]
    layers = job.network.layers
    while state.step < job.epochs * data.steps:
        for replica in replicas:
            replica.forward()
        gradients = [[replica.backward(layer) for replica in replicas] for layer in reversed(range(layers))][
            ::-1
        ]
        for layer, total in enumerate(_layer_sums(exchange, gradients, single_vector)):
            replicas[0].update(layer, total)
        state.step += 1
        if state.step % data.steps == 0:
            on_epoch(state)
    return state


def _layer_sums(exchange: Exchange, gradients: Sequence[Sequence[Floats]], single_vector: bool) -> list[Floats]:
    """Return the sum of each layer's gradients; ``gradients``: by layer, then by node.

    The last layer's are exchanged first, as hosts do.
    """
    if not single_vector:
        return [exchange(layer) for layer in reversed(gradients)][::-1]
    vectors = [np.concatenate(layers) for layers in zip(*gradients, strict=True)]
    boundaries = np.cumsum([layer[0].size for layer in gradients])[:-1]
    return np.split(exchange(vectors), boundaries)
