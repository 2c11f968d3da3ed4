"""Golden model of a CNN in training, bit-exact with its hardware (docs/systems/layers.md, "Training")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TypeVar

import numpy as np

from fanin.cnn.facts import Consumer, Network
from fanin.cnn.golden import compiled
from fanin.cnn.golden.folds import tree
from fanin.cnn.golden.layers import backward, forward, update
from fanin.cnn.layers.arithmetic import Frames, Kernels, SavedWords, State
from fanin.cnn.training import Job
from fanin.golden.fp32 import Float32

FORWARD, BACKWARD = "forward", "backward"
Key = TypeVar("Key", int, Consumer)
_EVALUATION_FRAMES = 256  # frames of a forward pass in evaluation


def initial_state(network: Network, seed: int) -> list[State]:
    """Return the initial state of each stage.

    Weights of convolutions and dense layers have Kaiming initialisation: normal, of variance 2 / ``fan_in``
    (kh · kw · input channels of a group). ``default_rng([seed, i])`` draws those of stage i in the order of the
    array; they are rounded once from binary64. All other state is ``zero_state``.
    """
    states = [stage.layer.zero_state() for stage in network.stages]
    for index, (stage, state) in enumerate(zip(network.stages, states, strict=True)):
        if fan_in := stage.layer.fan_in:
            deviates = np.random.default_rng([seed, index]).standard_normal(state["weights"].shape)
            state["weights"] = (deviates * sqrt(2 / fan_in)).astype(np.float32)
    return states


def output_gradient(network: Network, gradients: Mapping[Consumer, Frames], index: int) -> Frames | None:
    """Return the gradient of a stage's output; None if no gradient is sent to the stage.

    ``gradients``: gradient of each edge. ``tree`` adds the gradients of a fork.
    """
    terms = [gradients[edge] for edge in network.consumers[index] if edge in gradients]
    return tree(terms) if terms and network.stages[index].layer.trains else None


@dataclass(frozen=True)
class NonFinite:
    """Place of an infinity or a NaN."""

    stage: str  #: name of the stage
    direction: str  #: FORWARD for the stage's output, BACKWARD for the gradient that it sends back
    frame: int  #: index of the frame in the job, from 0


@dataclass
class Trace:
    """Trace of every stream for some frames of a job. Training adds the frames, in their order."""

    frames: range  #: frames of the job to record
    outputs: dict[int, Frames] = field(default_factory=dict)  #: outputs by stage
    gradients: dict[Consumer, Frames] = field(default_factory=dict)  #: input gradients by stage and port

    def add(self, first: int, outputs: dict[int, Frames], gradients: dict[Consumer, Frames]) -> None:
        """Add those frames of a batch that are in ``frames``. ``first``: index of the batch's first frame."""
        selected = slice(max(self.frames.start - first, 0), max(self.frames.stop - first, 0))
        _extend(self.outputs, outputs, selected)
        _extend(self.gradients, gradients, selected)


def _extend(trace: dict[Key, Frames], batch: dict[Key, Frames], selected: slice) -> None:
    for key, frames in batch.items():
        trace[key] = np.concatenate([trace[key], frames[selected]]) if key in trace else frames[selected]


class GoldenNetwork:
    """Golden model of a network with its state.

    ``states``: state by stage; arrays are replaced, never modified.
    ``nonfinite``: first infinity or NaN of the last job: by frame, then forward before backward, then by the
    order of stages in that direction. None if there is none.
    """

    def __init__(
        self, network: Network, states: Sequence[State], *, kernels: Kernels = compiled.KERNELS
    ) -> None:
        self.network = network
        self.states = [dict(state) for state in states]
        self.nonfinite: NonFinite | None = None
        self._kernels = kernels

    def train(self, images: Frames, labels: Float32, job: Job, trace: Trace | None = None) -> Frames:
        """Train on a job's images (frame, row, column, channel) and one-hot labels (frame, class).

        Return the softmax of every frame from its forward pass. Velocities carry over from job to job.
        Raises ValueError if the number of images or labels is not ``job.frames``.
        """
        if not len(images) == len(labels) == job.frames:
            raise ValueError(f"{len(images)} images and {len(labels)} labels for a job of {job.frames} frames")
        self.nonfinite = None
        results = []
        for first in range(0, job.frames, job.batch):
            last = first + job.batch >= job.frames
            batch = slice(first, first + job.batch)
            outputs, saved = self._forward(images[batch], labels[batch], train=True)
            gradients = self._backward(saved)
            for stage, state in zip(self.network.stages, self.states, strict=True):
                update(stage.layer, state, job.last_eta if last else job.eta, job.momentum)
            if self.nonfinite is None:
                self.nonfinite = self._first_nonfinite(first, outputs, gradients)
            if trace is not None:
                trace.add(first, outputs, gradients)
            results.append(outputs[self.network.loss])
        return np.concatenate(results)

    def evaluate(self, images: Frames) -> Frames:
        """Return the softmax of every frame; the state does not change."""
        shape = self.network.stages[self.network.labels].layer.output
        results = []
        for first in range(0, len(images), _EVALUATION_FRAMES):
            part = images[first : first + _EVALUATION_FRAMES]
            outputs, _ = self._forward(part, np.zeros((len(part), shape.words), np.float32), train=False)
            results.append(outputs[self.network.loss])
        return np.concatenate(results)

    def _forward(
        self, images: Frames, labels: Float32, *, train: bool
    ) -> tuple[dict[int, Frames], list[SavedWords]]:
        """Return the outputs of each stage, by index, and its saved words, in the order of stages."""
        network = self.network
        outputs: dict[int, Frames] = {}
        saved = []
        for index, (stage, state) in enumerate(zip(network.stages, self.states, strict=True)):
            shape = stage.layer.output
            host = {network.images: images, network.labels: labels}
            inputs = [outputs[source] for source in stage.sources] or [
                host[index].reshape(-1, shape.h, shape.w, shape.c)
            ]
            outputs[index], stage_saved = forward(
                stage.layer, stage.parallelism, state, inputs, train=train, kernels=self._kernels
            )
            saved.append(stage_saved)
        return outputs, saved

    def _backward(self, saved: list[SavedWords]) -> dict[Consumer, Frames]:
        """Return the gradient of every edge on a path to the loss."""
        network = self.network
        gradients: dict[Consumer, Frames] = {}
        for index in range(network.loss, -1, -1):
            stage = network.stages[index]
            gradient = output_gradient(network, gradients, index)
            if gradient is None:
                if index != network.loss:
                    continue
                gradient = np.empty(0, np.float32)
            input_gradients = backward(
                stage.layer,
                stage.parallelism,
                self.states[index],
                saved[index],
                gradient,
                kernels=self._kernels,
            )
            gradients.update((Consumer(index, port), frames) for port, frames in enumerate(input_gradients))
        return gradients

    def _first_nonfinite(
        self, first: int, outputs: dict[int, Frames], gradients: dict[Consumer, Frames]
    ) -> NonFinite | None:
        candidates = []
        streams = [(FORWARD, index, frames) for index, frames in outputs.items()]
        streams += [(BACKWARD, edge.stage, frames) for edge, frames in gradients.items()]
        for order, (direction, index, frames) in enumerate(streams):
            if not (finite := np.isfinite(frames)).all():
                frame = int(np.argmin(finite.reshape(len(frames), -1).all(axis=1)))
                candidates.append((frame, order, direction, index))
        if not candidates:
            return None
        frame, _, direction, index = min(candidates)
        return NonFinite(self.network.stages[index].name, direction, first + frame)
