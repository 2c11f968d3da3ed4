"""Machines that train a network in a run: RTL, the golden model, and PyTorch in binary64."""

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
    """Return the machines of a run by name; the first is the one of option ``--on``.

    The binary64 machine needs PyTorch, and a run that is new or whose checkpoint has binary64 state.
    """
    machines: dict[str, Machine] = {}
    if setup.on == RTL:
        from fanin.cnn.run.rtl import Rtl  # Amaranth takes a second to load

        machines[RTL] = Rtl(setup.build.planned, setup.build.arithmetic, setup.build.wires, setup.conditions)
    machines[GOLDEN] = Golden(setup.network)
    if setup.trains_binary64 and importlib.util.find_spec("torch"):
        machines[FLOAT64] = Float64(setup.network)
    return machines


class Golden:
    """Golden model as a ``Machine``."""

    def __init__(self, network: Network):
        self._network = network
        self._model = GoldenNetwork(network, [{} for _ in network.stages])

    def load(self, states: tuple[State, ...]) -> None:
        """Set the network's state."""
        self._model = GoldenNetwork(self._network, states)

    def dump(self) -> tuple[State, ...]:
        """Return a copy of the network's state."""
        return tuple(dict(state) for state in self._model.states)

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train batch by batch, with ``progress`` after each."""
        targets, results = one_hot(self._network, labels), []
        for first, batch in _batches(job):
            frames = slice(first, first + batch.frames)
            results.append(self._model.train(images[frames], targets[frames], batch))
            if nonfinite := self._model.nonfinite:
                part = "gradient" if nonfinite.direction == BACKWARD else "output"
                raise NotFinite(nonfinite.stage, part, first + nonfinite.frame)
            progress(frames.stop)
        return _by_class(np.concatenate(results))

    def evaluate(self, images: Frames) -> Outputs:
        """Return the softmax of each frame; the state does not change."""
        return _by_class(self._model.evaluate(images))


class Float64:
    """Network in binary64 as a ``Machine``, computed by PyTorch."""

    def __init__(self, network: Network):
        import torch  # which takes seconds to load

        from fanin.torch.cnn import Float64Network

        torch.set_num_threads(1)  # more threads do not speed up networks small enough to simulate
        self._network, self._make = network, Float64Network
        self._model = Float64Network(network, [{} for _ in network.stages])

    def load(self, states: tuple[AnyState, ...]) -> None:
        """Set the network's state."""
        self._model = self._make(self._network, states)

    def dump(self) -> tuple[State64, ...]:
        """Return a copy of the network's state in binary64."""
        return tuple(
            {name: values.detach().numpy().copy() for name, values in state.items()}
            for state in self._model.states
        )

    def train(self, images: Frames, labels: Labels, job: Job, progress: Progress) -> Outputs:
        """Train batch by batch, with ``progress`` after each."""
        targets, results = one_hot(self._network, labels), []
        for first, batch in _batches(job):
            frames = slice(first, first + batch.frames)
            results.append(self._model.train(images[frames], targets[frames], batch))
            progress(frames.stop)
        return _by_class(np.concatenate(results))

    def evaluate(self, images: Frames) -> Outputs:
        """Return the softmax of each frame; the state does not change."""
        return _by_class(self._model.evaluate(images))


def _by_class(softmax: Frames) -> Outputs:
    return softmax.reshape(len(softmax), -1)


def _batches(job: Job) -> Iterator[tuple[int, Job]]:
    """Yield the first frame and the job of each batch. These jobs lead to the same state as the whole job."""
    for first in range(0, job.frames, job.batch):
        frames = min(job.batch, job.frames - first)
        last = first + frames == job.frames
        yield first, replace(job, frames=frames, last_eta=job.last_eta if last else job.eta)
