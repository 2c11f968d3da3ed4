"""Distributed training of a small network over any exchange and codec (INCEPTIONN, sections IV and VIII).

The seed determines everything: split, initial weights, and each worker's samples and their order.
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
        """Return the initial parameters."""

    def gradient(self, vector: Float32, samples: Samples) -> Float32:
        """Return the gradient of the samples' mean loss, at the parameters ``vector``."""

    def accuracy(self, vector: Float32, samples: Samples) -> float:
        """Return the share of correctly classified samples."""


@dataclass(frozen=True)
class Batches:
    """Mini-batches of the workers in an iteration.

    - ``epoch``: number of its epoch, from 1.
    - ``last``: whether the iteration is the last of its epoch.
    - ``done``: share of the training before the iteration, 0 to 1.
    - ``samples``: per worker.
    """

    epoch: int
    last: bool
    done: float
    samples: list[Samples]


@dataclass(frozen=True)
class Step:
    """An iteration: the workers' gradients, and the parameters after it; ``last``: it ends its epoch."""

    epoch: int
    last: bool
    gradients: list[Float32]
    parameters: Float32


@dataclass(frozen=True)
class Epoch:
    """An epoch: ``accuracy`` on the held-out samples after it, and the traffic of its ``iterations``."""

    number: int
    iterations: int
    accuracy: float
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training run.

    - ``workers``: number of workers, each with a share of the samples.
    - ``epochs``: passes over the samples.
    - ``batch``: samples per worker and iteration (table I).
    - ``data``: function from a seed to training and held-out samples.
    - ``weights``: codec of the weights sent to the workers after every update; ``traffic`` counts them
      uncompressed.
    - ``master``: the aggregator keeps an exact copy of the weights. Otherwise the received weights are kept,
      and errors add up over iterations (figure 4).

    The sum of the gradients is applied at 1/workers of the rate: table I's 0.1 on the sum itself diverges.
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
        """Yield the workers' mini-batches, iteration by iteration."""
        samples, _ = self.data(self.seed)
        rng = np.random.default_rng(self.seed)
        shards = np.array_split(rng.permutation(len(samples)), self.workers)
        iterations = min(map(len, shards)) // self.batch
        for epoch in range(self.epochs):
            orders = [rng.permutation(shard) for shard in shards]
            for index in range(iterations):
                batch = slice(index * self.batch, (index + 1) * self.batch)
                done = (epoch * iterations + index) / (self.epochs * iterations)
                batches = [samples[order[batch]] for order in orders]
                yield Batches(epoch + 1, index == iterations - 1, done, batches)

    def steps(self, exchange: Exchange, traffic: Traffic) -> Iterator[Step]:
        """Train, iteration by iteration; add the bytes sent to ``traffic``."""
        parameters = self.network.initial(self.seed)
        received = transfer(parameters, self.weights).values
        velocity = np.zeros_like(parameters)
        for batches in self.batches():
            gradients = [self.network.gradient(received, worker_samples) for worker_samples in batches.samples]
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
