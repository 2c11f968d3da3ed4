"""conv, dwconv and dense, bit for bit: docs/systems/cluster.md, "Numbers".

Arrays have the axes frame, row, column, group, channel of the group; weights ky, kx, input channel, group,
output channel. Groups and whatever is no part of a sum are vectorised.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from fanin.golden.cnn.folds import tree
from fanin.golden.cnn.state import Frames, State
from fanin.golden.cnn.windows import crop, pad, seen
from fanin.golden.fp32 import Float32, add, multiply
from fanin.layers.layer import Parallelism
from fanin.layers.window import Conv, DepthwiseConv


def forward(layer: Conv, p: Parallelism, state: State, inputs: Frames) -> Frames:
    """y."""
    x, w = _input(layer, inputs), _by_group(layer, state["weights"])
    pic, _ = _lanes(layer, p)
    y = np.zeros((*_shape(layer, x), *w.shape[3:]), np.float32)
    for ky, kx, first in product(*map(range, layer.kernel), range(0, w.shape[2], pic)):
        patch = seen(layer, x, ky, kx)
        y = add(y, tree([multiply(patch[..., i, None], w[ky, kx, i]) for i in range(first, first + pic)]))
    return y.reshape(*_shape(layer, x), layer.channels)


def backward(layer: Conv, p: Parallelism, state: State, saved: Float32, gradient: Frames) -> Frames | None:
    """The gradient of the input, if it has one. That of the weights is folded into the velocity."""
    x, dy = _input(layer, saved), gradient.reshape(*gradient.shape[:3], layer.groups, layer.group[1])
    state["velocity"] = _weight_gradient(layer, p, state["velocity"], x, dy)
    if not layer.gradient:
        return None
    dx = _input_gradient(layer, p, _by_group(layer, state["weights"]), x.shape, dy)
    shape = layer.inputs[0]
    return crop(layer, dx).reshape(len(dx), shape.h, shape.w, shape.c)


def _input_gradient(layer: Conv, p: Parallelism, w: Float32, shape: tuple[int, ...], dy: Float32) -> Float32:
    """Of the padded input. ky and kx descend: so the outputs that saw an input come in ascending order."""
    _, poc = _lanes(layer, p)
    dx = np.zeros(shape, np.float32)
    for ky, kx, first in product(*(range(k)[::-1] for k in layer.kernel), range(0, w.shape[4], poc)):
        places = seen(layer, dx, ky, kx)
        terms = [multiply(w[ky, kx, :, :, o].T, dy[..., o, None]) for o in range(first, first + poc)]
        places[...] = add(places, tree(terms))
    return dx


def _weight_gradient(layer: Conv, p: Parallelism, velocity: Float32, x: Float32, dy: Float32) -> Float32:
    windows = np.stack(
        [
            np.stack([seen(layer, x, ky, kx) for kx in range(layer.kernel[1])], 3)
            for ky in range(layer.kernel[0])
        ],
        3,
    )  # frame, row, column, ky, kx, group, channel
    windows = np.swapaxes(windows, -1, -2)[..., None]
    v = _by_group(layer, velocity)
    for frame, oy, first in product(*map(range, dy.shape[:2]), range(0, dy.shape[2], p.ph)):
        terms = [multiply(windows[frame, oy, ox], dy[frame, oy, ox]) for ox in range(first, first + p.ph)]
        v = add(v, tree(terms))
    return v.reshape(velocity.shape)


def _lanes(layer: Conv, p: Parallelism) -> tuple[int, int]:
    """Input and output channels of a tree: a depthwise convolution has only one of each in a sum."""
    return (1, 1) if isinstance(layer, DepthwiseConv) else (p.pic, p.poc)


def _input(layer: Conv, x: Float32) -> Float32:
    """Padded, by group; flattened, where the layer is dense."""
    shape = layer.input
    return pad(layer, x.reshape(len(x), shape.h, shape.w, layer.groups, layer.group[0]))


def _by_group(layer: Conv, weights: Float32) -> Float32:
    return weights.reshape(*layer.kernel, layer.group[0], layer.groups, layer.group[1])


def _shape(layer: Conv, x: Float32) -> tuple[int, int, int]:
    return len(x), layer.output.h, layer.output.w
