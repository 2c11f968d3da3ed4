"""What trains a network in a run: the golden model, and what stands beside it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fanin.cnn.facts import Network
from fanin.cnn.golden.network import BACKWARD, GoldenNetwork
from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.run.machine import (
    FLOAT64,
    GOLDEN,
    RTL,
    AnyState,
    Labels,
    Machine,
    NotFinite,
    Outputs,
    Progress,
    State64,
    one_hot,
)
from fanin.cnn.run.setup import Setup
from fanin.cnn.training import Job


def machines_of(setup: Setup) -> dict[str, Machine]:
    """What a run trains on, by name, its own machine first; in binary64 where PyTorch is installed.

    A run that goes on without a state in binary64 has none.
    """
    found: dict[str, Machine] = {}
    if setup.on == RTL:
        from fanin.cnn.run.rtl import Rtl  # Amaranth takes a second to load

        found[RTL] = Rtl(setup.build.planned, setup.build.arithmetic, setup.build.wires, setup.conditions)
    found[GOLDEN] = Golden(setup.network)
    if setup.beside and importlib.util.find_spec("torch"):
        found[FLOAT64] = Float64(setup.network)
    return found


class Golden:
    """The golden model, as a ``Machine``."""

    def __init__(self, network: Network):
        self._network = network
        self._model = GoldenNetwork(network, [{} for _ in network.stages])

    def load(self, states: tuple[State, ...]) -> None:
        """Go on from a state."""
        self._model = GoldenNetwork(self._network, states)

    def dump(self) -> tuple[State, ...]:
        """The state now."""
        return tuple(dict(state) for state in self._model.states)

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train, a batch after the other."""
        chosen, results = one_hot(self._network, labels), []
        for first, batch in _batches(job):
            frames = slice(first, first + batch.frames)
            results.append(self._model.train(images[frames], chosen[frames], batch))
            if found := self._model.nonfinite:
                part = "gradient" if found.direction == BACKWARD else "output"
                raise NotFinite(found.stage, part, first + found.frame)
            progress(frames.stop)
        return _by_class(np.concatenate(results))

    def evaluate(self, images: Frames) -> Outputs:
        """Classify."""
        return _by_class(self._model.evaluate(images))


class Float64:
    """The same network in binary64, as a ``Machine``."""

    def __init__(self, network: Network):
        import torch  # which takes seconds to load

        from fanin.torch.cnn import Float64Network

        torch.set_num_threads(1)  # of a network as small as what is simulated, others only wait
        self._network, self._make = network, Float64Network
        self._model = Float64Network(network, [{} for _ in network.stages])

    def load(self, states: tuple[AnyState, ...]) -> None:
        """Go on from a state."""
        self._model = self._make(self._network, states)

    def dump(self) -> tuple[State64, ...]:
        """The state now, every bit of it."""
        return tuple(
            {name: values.detach().numpy().copy() for name, values in state.items()}
            for state in self._model.states
        )

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train, a batch after the other."""
        chosen, results = one_hot(self._network, labels), []
        for first, batch in _batches(job):
            frames = slice(first, first + batch.frames)
            results.append(self._model.train(images[frames], chosen[frames], batch))
            progress(frames.stop)
        return _by_class(np.concatenate(results))

    def evaluate(self, images: Frames) -> Outputs:
        """Classify."""
        return _by_class(self._model.evaluate(images))


def _by_class(softmax: Frames) -> Outputs:
    return softmax.reshape(len(softmax), -1)


def _batches(job: Job) -> Iterator[tuple[int, Job]]:
    """A job for each batch, with its first frame: together they leave the same state."""
    for first in range(0, job.frames, job.batch):
        frames = min(job.batch, job.frames - first)
        last = first + frames == job.frames
        yield first, replace(job, frames=frames, last_eta=job.last_eta if last else job.eta)
