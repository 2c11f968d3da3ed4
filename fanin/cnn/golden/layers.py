"""Every layer, forward and backward, bit for bit as its hardware: docs/systems/cluster.md, "Numbers".

The kernel of a kind stands in its file, ``fanin/cnn/layers/KIND.py``. It is slow with the readable operations
of this module; those of ``fanin.cnn.golden.compiled`` are fast. Frames are float32 of axes frame, row, column,
channel: a batch, or a part of one, in the order in which the frames come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fanin.cnn.golden import convolution, normalise
from fanin.cnn.golden.folds import fold
from fanin.cnn.golden.functions import exp, reciprocal
from fanin.cnn.layers.arithmetic import Frames, Kernels, Saved, State
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
) -> tuple[Frames, Saved]:
    """The output of each frame, and the words that the hardware saves of it: ``layer.saved``, or none.

    What is saved, in raster order: a convolution's input, an activation's output, of max_pool the place in the
    window (row · kernel width + column), of online normalisation 1/σ of every channel and then y. A loss
    saves nothing in hardware, since its gradient leaves at once; here that gradient takes the place. In
    evaluation, without ``train``, nothing is saved.
    With ``train``, online normalisation's part of ``state`` follows the frames.
    """
    output, kept = layer.golden(kernels, parallelism, state, inputs, train)
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
    words = np.ascontiguousarray(saved).view(np.float32)
    found = layer.golden_back(kernels, parallelism, state, words, gradient)
    return found if layer.gradient else ()


def update(layer: Layer, state: State, eta: np.float32, momentum: np.float32) -> None:
    """At a batch's end: w ← w ⊕ (η ⊗ v), v ← μ ⊗ v. ``eta`` is −lr/B."""
    if layer.parameters:
        state["weights"] = add(state["weights"], multiply(eta, state["velocity"]))
        state["velocity"] = multiply(momentum, state["velocity"])
