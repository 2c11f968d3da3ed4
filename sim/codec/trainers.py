"""Distributed training of a small network over any exchange and codec (INCEPTIONN, sections IV and VIII).

Everything follows from the seed: split, initial weights, who trains on what and in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.sim.codec.exchanges import Exchange
from fanin.sim.codec.wire import AnyCodec, Traffic, transfer
from fanin.sim.learning.mlp import Descent, Mlp, Samples, load_digits

Float32 = npt.NDArray[np.float32]


class Network(Protocol):
    """A model whose parameters, and the gradient of their loss, are one float32 vector each."""

    def initial(self, seed: int) -> Float32:
        """The first parameters."""

    def gradient(self, vector: Float32, samples: Samples) -> Float32:
        """Of the samples' mean loss, at the parameters ``vector``."""

    def accuracy(self, vector: Float32, samples: Samples) -> float:
        """Share of the samples that are recognised."""


@dataclass(frozen=True)
class Batches:
    """The mini-batch of each worker in an iteration; the ``last`` of its epoch? ``done``: the share of the
    training that is behind it.
    """

    epoch: int
    last: bool
    done: float
    of_workers: list[Samples]


@dataclass(frozen=True)
class Step:
    """An iteration: the workers' gradients as computed, the parameters behind it; the ``last`` of its epoch?"""

    epoch: int
    last: bool
    gradients: list[Float32]
    parameters: Float32


@dataclass(frozen=True)
class Epoch:
    """``accuracy`` on the held-out samples after it, and what travelled in its ``iterations``."""

    number: int
    iterations: int
    accuracy: float
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run: ``workers`` with a share of the samples each, ``batch`` samples a worker and iteration (table I).

    ``data``: the samples to train on and the held-out ones, by seed. The sum of the gradients is applied at
    1/workers of the rate: table I's 0.1 on the sum itself diverges. ``weights``: the codec of the weights on
    their way to the workers after every update; ``traffic`` counts them whole. What arrives is what stays, so
    that errors add up over iterations (figure 4), unless the aggregator keeps a ``master`` copy.
    """

    workers: int = 4
    epochs: int = 20
    batch: int = 25
    seed: int = 0
    network: Network = field(default_factory=Mlp)
    descent: Descent = field(default_factory=Descent)
    data: Callable[[int], tuple[Samples, Samples]] = load_digits
    weights: AnyCodec = None
    master: bool = False

    def batches(self) -> Iterator[Batches]:
        """What the workers train on, iteration by iteration."""
        samples, _ = self.data(self.seed)
        rng = np.random.default_rng(self.seed)
        shards = np.array_split(rng.permutation(len(samples)), self.workers)
        iterations = min(map(len, shards)) // self.batch
        for epoch in range(self.epochs):
            orders = [rng.permutation(shard) for shard in shards]
            for index in range(iterations):
                batch = slice(index * self.batch, (index + 1) * self.batch)
                done = (epoch * iterations + index) / (self.epochs * iterations)
                of_workers = [samples[order[batch]] for order in orders]
                yield Batches(epoch + 1, index == iterations - 1, done, of_workers)

    def steps(self, exchange: Exchange, traffic: Traffic) -> Iterator[Step]:
        """Train, iteration by iteration; what travels is added to ``traffic``."""
        parameters = self.network.initial(self.seed)
        received = transfer(parameters, self.weights).values
        velocity = np.zeros_like(parameters)
        for batches in self.batches():
            gradients = [self.network.gradient(received, own) for own in batches.of_workers]
            mean = exchange(gradients, traffic) / np.float32(self.workers)
            self.descent.step(parameters, velocity, mean, batches.done)
            received = transfer(parameters, self.weights).values
            if not self.master:
                parameters = received
            yield Step(batches.epoch, batches.last, gradients, received)

    def run(self, exchange: Exchange) -> Iterator[Epoch]:
        """Train, epoch by epoch."""
        _, test = self.data(self.seed)
        traffic = Traffic()
        iterations = 0
        for step in self.steps(exchange, traffic):
            iterations += 1
            if step.last:
                accuracy = self.network.accuracy(step.parameters, test)
                yield Epoch(step.epoch, iterations, accuracy, Traffic(traffic.legs))
                iterations, traffic.legs = 0, {}
