"""conv, dwconv and dense, bit for bit: docs/systems/cluster.md, "Numbers".

Arrays have the axes frame, row, column, group, channel of the group; weights ky, kx, input channel, group,
output channel. Groups and whatever is no part of a sum are vectorised.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from fanin.cnn.golden.folds import tree
from fanin.cnn.golden.kernels import Kernels
from fanin.cnn.golden.state import Frames, State
from fanin.cnn.golden.windows import crop, pad, places, seen
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Parallelism
from fanin.golden.fp32 import Float32, add, multiply


def forward(layer: Conv, p: Parallelism, state: State, x: Frames, kernels: Kernels) -> Frames:
    """The output."""
    pic, _ = _lanes(layer, p)
    y = kernels.outputs(layer, pic, _input(layer, x), _by_group(layer, state["weights"]))
    return y.reshape(*y.shape[:3], layer.channels)


def backward(
    layer: Conv, p: Parallelism, state: State, saved: Float32, gradient: Frames, kernels: Kernels
) -> Frames | None:
    """The gradient of the input, if it has one. That of the weights is folded into the velocity."""
    _, poc = _lanes(layer, p)
    x, dy = _input(layer, saved), gradient.reshape(*gradient.shape[:3], layer.groups, layer.group[1])
    velocity = state["velocity"]
    folded = kernels.weight_gradient(layer, p.ph, x, dy, _by_group(layer, velocity))
    state["velocity"] = folded.reshape(velocity.shape)
    if not layer.gradient:
        return None
    dx = kernels.input_gradient(layer, poc, _by_group(layer, state["weights"]), dy, np.zeros_like(x))
    shape = layer.inputs[0]
    return crop(layer, dx).reshape(len(dx), shape.h, shape.w, shape.c)


def outputs(layer: Conv, pic: int, x: Float32, w: Float32) -> Float32:
    """y of the padded input."""
    y = np.zeros((len(x), layer.output.h, layer.output.w, *w.shape[3:]), np.float32)
    for ky, kx, first in product(*map(range, layer.kernel), range(0, w.shape[2], pic)):
        patch = seen(layer, x, ky, kx)
        y = add(y, tree([multiply(patch[..., i, None], w[ky, kx, i]) for i in range(first, first + pic)]))
    return y


def input_gradient(layer: Conv, poc: int, w: Float32, dy: Float32, dx: Float32) -> Float32:
    """The gradient of the padded input, whose zeros are ``dx``.

    ky and kx descend: so the outputs that saw an input come in ascending order.
    """
    for ky, kx, first in product(*(range(k)[::-1] for k in layer.kernel), range(0, w.shape[4], poc)):
        view = seen(layer, dx, ky, kx)
        terms = [multiply(w[ky, kx, :, :, o].T, dy[..., o, None]) for o in range(first, first + poc)]
        view[...] = add(view, tree(terms))
    return dx


def weight_gradient(layer: Conv, ph: int, x: Float32, dy: Float32, v: Float32) -> Float32:
    """The velocity with the gradient of the weights folded into it."""
    windows = np.stack([seen(layer, x, *at) for at in places(layer)])
    windows = windows.reshape(*layer.kernel, *windows.shape[1:]).swapaxes(-1, -2)[..., None]
    for frame, oy, first in product(*map(range, dy.shape[:2]), range(0, dy.shape[2], ph)):
        terms = [multiply(windows[:, :, frame, oy, ox], dy[frame, oy, ox]) for ox in range(first, first + ph)]
        v = add(v, tree(terms))
    return v


def _lanes(layer: Conv, p: Parallelism) -> tuple[int, int]:
    """Input and output channels of a tree: a depthwise convolution has only one of each in a sum.

    Raises ValueError where lanes or columns do not divide what they work on.
    """
    pic, poc = (1, 1) if isinstance(layer, DepthwiseConv) else (p.pic, p.poc)
    ic, oc = layer.group
    if ic % pic or oc % poc or layer.output.w % p.ph:
        raise ValueError(f"{p} does not divide {ic} → {oc} channels and {layer.output.w} columns")
    return pic, poc


def _input(layer: Conv, x: Float32) -> Float32:
    """Padded, by group; flattened, where the layer is dense."""
    shape = layer.input
    return pad(layer, x.reshape(len(x), shape.h, shape.w, layer.groups, layer.group[0]))


def _by_group(layer: Conv, weights: Float32) -> Float32:
    return weights.reshape(*layer.kernel, layer.group[0], layer.groups, layer.group[1])
