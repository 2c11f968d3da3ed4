"""Golden model of layers, forward and backward, bit-exact with hardware (docs/systems/layers.md, "Numbers").

``fanin/cnn/layers/KIND.py`` has the kernel of a kind of layer. The operations ``READABLE`` are readable but
slow; those of ``fanin.cnn.golden.compiled`` are fast. Frames are float32 arrays with axes frame, row, column,
channel. An array has the frames of a batch, or of a part of one, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fanin.cnn.golden import convolution, normalise
from fanin.cnn.golden.folds import fold
from fanin.cnn.golden.functions import exp, reciprocal
from fanin.cnn.layers.arithmetic import Frames, Kernels, SavedWords, State
from fanin.cnn.layers.layer import Layer, Parallelism
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.golden.fp32 import add, multiply

READABLE = Kernels(
    add=add,
    multiply=multiply,
    fold=fold,
    exp=exp,
    reciprocal=reciprocal,
    outputs=convolution.outputs,
    input_gradient=convolution.input_gradient,
    weight_gradient=convolution.weight_gradient,
    norm_forward=normalise.online_norm,
    norm_backward=normalise.online_norm_back,
)


def forward(
    layer: Layer,
    parallelism: Parallelism,
    state: State,
    inputs: Sequence[Frames],
    *,
    train: bool = True,
    kernels: Kernels = READABLE,
) -> tuple[Frames, SavedWords]:
    """Return the outputs, and the words that the hardware saves of each frame for the backward pass.

    Saved words are in raster order:

    - convolution: the input
    - ReLU: a bit of each output, high if its gradient passes, the first in the least significant bit of a
      word; or the output if not ``masked``
    - max_pool: the place in the window (row · kernel width + column)
    - online normalisation: 1/σ of every channel, then y
    - loss: the gradient; the hardware saves nothing, since the gradient leaves immediately

    ``train``: true for training, in which online normalisation updates ``state`` after each frame; false for
    evaluation, in which nothing is saved.
    """
    output, saved = layer.golden(kernels, parallelism, state, inputs, train)
    if saved is None or not train or not (layer.saved_words or isinstance(layer, SoftCrossLoss)):
        return output, np.zeros((len(output), 0), np.uint32)
    return output, np.ascontiguousarray(saved).reshape(len(output), -1).view(np.uint32)


def backward(
    layer: Layer,
    parallelism: Parallelism,
    state: State,
    replay: SavedWords,
    gradient: Frames,
    *,
    kernels: Kernels = READABLE,
) -> tuple[Frames, ...]:
    """Return the gradient of each input; empty without gradient. Batching may differ from the forward pass.

    ``replay``: saved words of these frames, from :func:`forward`.
    ``gradient``: gradient of the output. A loss ignores it, and returns a gradient for its first input only.
    ``state``: gradients of parameters are folded into the velocity, and online normalisation updates its
    control terms after each frame.
    """
    words = np.ascontiguousarray(replay).view(np.float32)
    gradients = layer.golden_back(kernels, parallelism, state, words, gradient)
    return gradients if layer.gradient else ()


def update(layer: Layer, state: State, eta: np.float32, momentum: np.float32) -> None:
    """Update parameters at a batch's end: w ← w ⊕ (η ⊗ v), v ← μ ⊗ v. ``eta``: −lr / frames of the batch."""
    if layer.parameters:
        state["weights"] = add(state["weights"], multiply(eta, state["velocity"]))
        state["velocity"] = multiply(momentum, state["velocity"])
