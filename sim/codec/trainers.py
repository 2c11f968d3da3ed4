"""Distributed training of a small network over any exchange and codec (INCEPTIONN, sections IV and VIII).

Everything follows from the seed: split, initial weights, who trains on what and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fanin.sim.codec.exchanges import Exchange
from fanin.sim.codec.wire import Traffic
from fanin.sim.learning.mlp import Descent, Mlp, load_digits

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Step:
    """An iteration: the workers' gradients as computed, the parameters behind it; the ``last`` of its epoch?"""

    epoch: int
    last: bool
    gradients: list[Float32]
    parameters: Float32


@dataclass(frozen=True)
class Epoch:
    """``accuracy`` on the held-out digits after it, and what travelled in its ``iterations``."""

    number: int
    iterations: int
    accuracy: float
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run: ``workers`` with a share of the digits each, ``batch`` samples a worker and iteration (table I).

    The sum of the gradients is applied at 1/workers of the rate: table I's 0.1 on the sum itself diverges.
    """

    workers: int = 4
    epochs: int = 20
    batch: int = 25
    seed: int = 0
    network: Mlp = field(default_factory=Mlp)
    descent: Descent = field(default_factory=Descent)

    def steps(self, exchange: Exchange, traffic: Traffic) -> Iterator[Step]:
        """Train, iteration by iteration; what travels is added to ``traffic``."""
        samples, _ = load_digits(self.seed)
        rng = np.random.default_rng(self.seed)
        shards = np.array_split(rng.permutation(len(samples)), self.workers)
        iterations = min(map(len, shards)) // self.batch
        parameters = self.network.initial(self.seed)
        velocity = np.zeros_like(parameters)
        for epoch in range(self.epochs):
            orders = [rng.permutation(shard) for shard in shards]
            for index in range(iterations):
                batch = slice(index * self.batch, (index + 1) * self.batch)
                gradients = [self.network.gradient(parameters, samples[order[batch]]) for order in orders]
                mean = exchange(gradients, traffic) / np.float32(self.workers)
                done = (epoch * iterations + index) / (self.epochs * iterations)
                self.descent.step(parameters, velocity, mean, done)
                yield Step(epoch + 1, index == iterations - 1, gradients, parameters)

    def run(self, exchange: Exchange) -> Iterator[Epoch]:
        """Train, epoch by epoch."""
        _, test = load_digits(self.seed)
        traffic = Traffic()
        iterations = 0
        for step in self.steps(exchange, traffic):
            iterations += 1
            if step.last:
                accuracy = self.network.accuracy(step.parameters, test)
                yield Epoch(step.epoch, iterations, accuracy, Traffic(traffic.legs))
                iterations, traffic.legs = 0, {}
