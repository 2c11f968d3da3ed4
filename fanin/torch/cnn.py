"""Training of a network of ``fanin.cnn.facts`` in binary64 PyTorch, without the rounding of binary32.

Gradients are PyTorch's own, except those of online normalisation, which are no derivative. Its Function
implements the equations of Chiley et al., "Online Normalization for Training Neural Networks" (NeurIPS 2019),
not the recurrence of the hardware. Inputs and outputs are NumPy arrays with axes frame, row, column, channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.cnn.facts import Network
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.training import Job

try:
    import torch
    import torch.nn.functional as F
except ModuleNotFoundError as error:
    raise ImportError("fanin.torch.cnn needs PyTorch: pip install 'fanin[torch]'") from error

Array = npt.NDArray[Any]
Tensors = dict[str, torch.Tensor]  #: a layer's state, by the names of its ``zero_state``


class Float64Network:
    """A network in binary64 with its state.

    - ``states``: state by stage; initially the given one, exactly.
    - ``outputs``: output of each stage for the last batch.
    - ``gradients``: derivative of the loss by each of these outputs.
    """

    def __init__(self, network: Network, states: Sequence[dict[str, Array]]) -> None:
        self.network = network
        self.states: list[Tensors] = [
            {name: _tensor(array) for name, array in state.items()} for state in states
        ]
        self.outputs: list[torch.Tensor] = []

    @property
    def gradients(self) -> list[torch.Tensor | None]:
        """By stage; None if the loss does not depend on the output, or no layer before it is trained."""
        return [output.grad for output in self.outputs]

    def train(self, images: Array, labels: Array, job: Job) -> Array:
        """Run a job like ``GoldenNetwork.train``; return the softmax of every frame."""
        results = []
        for start in range(0, job.frames, job.batch):
            batch = slice(start, start + job.batch)
            eta = job.eta if start + job.batch < job.frames else job.last_eta
            results.append(self.learn(images[batch], labels[batch], float(eta), float(job.momentum)))
        return np.concatenate(results)

    def learn(self, images: Array, labels: Array, eta: float, momentum: float) -> Array:
        """Train on one batch: with v = gradient + v, w ← w + η·v, then v ← μ·v. Return its frames' softmax.

        ``eta``: η, negative: −learning rate / frames of the batch.
        ``momentum``: μ.
        """
        trained = [state for state in self.states if "weights" in state]
        for state in trained:
            state["weights"].requires_grad_()
        softmax = self._forward(images, labels, train=True)
        self._loss(labels).backward()
        for state in trained:
            velocity = state["velocity"] + state["weights"].grad
            state["weights"] = state["weights"].detach() + eta * velocity
            state["velocity"] = momentum * velocity
        return softmax

    def evaluate(self, images: Array) -> Array:
        """Return the softmax of every frame without training."""
        with torch.no_grad():
            shape = self.network.stages[self.network.labels].layer.output
            return self._forward(images, np.zeros((len(images), shape.words)), train=False)

    def _forward(self, images: Array, labels: Array, *, train: bool) -> Array:
        network = self.network
        host = {network.images: images, network.labels: labels}
        self.outputs = []
        for index, (stage, state) in enumerate(zip(network.stages, self.states, strict=True)):
            shape = stage.layer.output
            if isinstance(stage.layer, Input):
                output = _tensor(host[index]).reshape(-1, shape.h, shape.w, shape.c)
            else:
                inputs = [self.outputs[source] for source in stage.sources]
                output = forward(stage.layer, state, inputs, train=train)
            if output.requires_grad:
                output.retain_grad()
            self.outputs.append(output)
        return self.outputs[network.loss].detach().numpy()

    def _loss(self, labels: Array) -> torch.Tensor:
        """Return the cross-entropy, summed over the frames."""
        logits = self.outputs[self.network.stages[self.network.loss].sources[0]].flatten(1)
        return -(_tensor(labels).reshape(logits.shape) * F.log_softmax(logits, 1)).sum()


def forward(
    layer: Layer, state: Tensors, inputs: Sequence[torch.Tensor], *, train: bool = True
) -> torch.Tensor:
    """Return a layer's output.

    In training, online normalisation updates its state here and its control terms in the backward pass. Of
    equal maxima in max_pool, the first one gets the gradient.
    """
    if train and isinstance(layer, OnlineNorm):
        return _OnlineNorm.apply(inputs[0], layer, state)
    output: torch.Tensor = layer.float64(torch, state, inputs)
    return output


class _OnlineNorm(torch.autograd.Function):
    """y = (x − μ)/σ by channel, with μ and σ of the previous frame, and the paper's controlled gradient.

    Forward: σ²ₜ = α σ²ₜ₋₁ + (1 − α) var(xₜ) + α (1 − α) (mean(xₜ) − μₜ₋₁)², μₜ = α μₜ₋₁ + (1 − α) mean(xₜ).
    Backward: ỹ' = y' − (1 − α_b) ε_y y, then ε_y grows by mean(ỹ' y); x' = ỹ'/σ − (1 − α_b) ε_1, then ε_1 grows
    by mean(x'). The state's ``ey`` and ``e1`` are (1 − α_b) ε_y and (1 − α_b) ε_1.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: OnlineNorm, state: Tensors) -> torch.Tensor:
        alpha = layer.forward_decay
        outputs, deviations = [], []
        for frame in x:
            mean, deviation = state["mean"], 1 / state["scale"]
            outputs.append((frame - mean) / deviation)
            deviations.append(deviation)
            frame_mean, variance = frame.mean((0, 1)), frame.var((0, 1), correction=0)
            state["mean"] = alpha * mean + (1 - alpha) * frame_mean
            state["variance"] = (
                alpha * state["variance"]
                + (1 - alpha) * variance
                + alpha * (1 - alpha) * (frame_mean - mean) ** 2
            )
            state["scale"] = 1 / torch.sqrt(state["variance"] + layer.epsilon)
        ctx.layer, ctx.state = layer, state
        ctx.save_for_backward(torch.stack(outputs), torch.stack(deviations))
        return torch.stack(outputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        share = 1 - ctx.layer.backward_decay
        control_y, control_1 = ctx.state["ey"] / share, ctx.state["e1"] / share
        gradients = []
        for y, deviation, dy in zip(*ctx.saved_tensors, gradient, strict=True):
            controlled = dy - share * control_y * y
            control_y = control_y + (controlled * y).mean((0, 1))
            dx = controlled / deviation - share * control_1
            control_1 = control_1 + dx.mean((0, 1))
            gradients.append(dx)
        ctx.state |= {"ey": share * control_y, "e1": share * control_1}
        return torch.stack(gradients), None, None


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))
