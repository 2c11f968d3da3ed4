"""Every layer, forward and backward, bit for bit as its hardware: docs/systems/cluster.md, "Numbers".

Readable and slow with the kernels of here; those of ``fanin.cnn.golden.compiled`` are fast. Frames are float32
of axes frame, row, column, channel: a batch, or a part of one, in the order in which the frames come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.cnn.golden import convolution, normalise, pointwise, windows
from fanin.cnn.golden.folds import fold
from fanin.cnn.golden.kernels import Kernels
from fanin.cnn.golden.state import Frames, Saved, State
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Parallelism
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.golden.fp32 import add, multiply

READABLE = Kernels(
    outputs=convolution.outputs,
    input_gradient=convolution.input_gradient,
    weight_gradient=convolution.weight_gradient,
    fold=fold,
    norm_forward=normalise.online_norm,
    norm_backward=normalise.online_norm_back,
)
Array = npt.NDArray[Any]


def forward(
    layer: Layer,
    parallelism: Parallelism,
    state: State,
    inputs: Sequence[Frames],
    *,
    train: bool = True,
    kernels: Kernels = READABLE,
) -> tuple[Frames, Saved]:
    """The output of each frame, and the words that the hardware saves of it: ``layer.saved``, or none.

    What is saved, in raster order: a convolution's input, an activation's output, of max_pool the place in the
    window (row · kernel width + column), of online normalisation 1/σ of every channel and then y. A loss
    saves nothing in hardware, since its gradient leaves at once; here that gradient takes the place. In
    evaluation, without ``train``, nothing is saved.
    With ``train``, online normalisation's part of ``state`` follows the frames.
    """
    output, kept = _forward(layer, parallelism, state, inputs, train, kernels)
    if kept is None or not train or not (layer.saved or isinstance(layer, SoftCrossLoss)):
        return output, np.zeros((len(output), 0), np.uint32)
    return output, np.ascontiguousarray(kept).reshape(len(output), -1).view(np.uint32)


def backward(
    layer: Layer,
    parallelism: Parallelism,
    state: State,
    saved: Saved,
    gradient: Frames,
    *,
    kernels: Kernels = READABLE,
) -> tuple[Frames, ...]:
    """The gradient of each input, of frames that went forward together or one by one; none if there is none.

    ``saved``: of these frames, from :func:`forward`. ``gradient``: of the output; a loss takes no notice of it,
    and has one only for its first input. Parameters' gradients are folded into the velocity in ``state``, and
    online normalisation's control terms there follow the frames.
    """
    found: Frames | None
    words = np.ascontiguousarray(saved).view(np.float32)
    match layer:
        case Conv():
            found = convolution.backward(layer, parallelism, state, words, gradient, kernels)
        case Bias():
            found = pointwise.bias_back(state, gradient, kernels)
        case Relu():
            found = pointwise.relu_back(layer, words.reshape(gradient.shape), gradient)
        case OnlineNorm():
            found = kernels.norm_backward(layer, state, words, gradient)
        case MaxPool():
            found = windows.max_pool_back(layer, saved, gradient)
        case AvgPool():
            found = windows.avg_pool_back(layer, gradient)
        case GlobalAvgPool():
            found = windows.global_avg_pool_back(layer, gradient)
        case Im2col():
            found = windows.im2col_back(layer, gradient)
        case Concat():
            return pointwise.concat_back(layer, gradient) if layer.gradient else ()
        case SoftCrossLoss():
            shape = layer.input
            found = words.reshape(len(words), shape.h, shape.w, shape.c)
        case Add() | Output():
            return len(layer.inputs) * layer.gradient * (gradient,)
        case _:
            raise TypeError(f"{layer.kind} has no way back")
    return (found,) if layer.gradient and found is not None else ()


def update(layer: Layer, state: State, eta: np.float32, momentum: np.float32) -> None:
    """At a batch's end: w ← w ⊕ (η ⊗ v), v ← μ ⊗ v. ``eta`` is −lr/B."""
    if layer.parameters:
        state["weights"] = add(state["weights"], multiply(eta, state["velocity"]))
        state["velocity"] = multiply(momentum, state["velocity"])


def _forward(
    layer: Layer,
    parallelism: Parallelism,
    state: State,
    inputs: Sequence[Frames],
    train: bool,
    kernels: Kernels,
) -> tuple[Frames, Array | None]:
    """The output, and what a frame's way back needs of it."""
    x = inputs[0]
    match layer:
        case Conv():
            return convolution.forward(layer, parallelism, state, x, kernels), x
        case Bias():
            return pointwise.bias(state, x), None
        case Relu():
            y = pointwise.relu(layer, x)
            return y, y
        case OnlineNorm():
            return kernels.norm_forward(layer, state, x, train)
        case MaxPool():
            return windows.max_pool(layer, x)
        case AvgPool():
            return windows.avg_pool(layer, x), None
        case GlobalAvgPool():
            return windows.global_avg_pool(layer, x), None
        case Im2col():
            return windows.im2col(layer, x), None
        case Concat():
            return np.concatenate(inputs, -1), None
        case Add():
            return add(*inputs), None
        case SoftCrossLoss():
            return normalise.loss(*inputs)
        case Input() | Output():
            return x, None
        case _:
            raise TypeError(f"{layer.kind} is no layer that trains")
