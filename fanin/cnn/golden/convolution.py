"""Golden model of conv, dwconv and dense, bit-exact: docs/systems/layers.md, "Numbers".

Axes of maps are (frame, row, column, group, channel of the group). Axes of weights are (ky, kx, input
channel, group, output channel). Groups and all axes outside sums are vectorised.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from fanin.cnn.golden.folds import tree
from fanin.cnn.layers.arithmetic import Float32
from fanin.cnn.layers.conv import Conv
from fanin.golden.fp32 import add, multiply


def outputs(layer: Conv, pic: int, x: Float32, w: Float32) -> Float32:
    """Return the output. ``x``: padded input; ``w``: weights; ``pic``: input channels of a tree."""
    y = np.zeros((len(x), layer.output.h, layer.output.w, *w.shape[3:]), np.float32)
    for ky, kx, first in product(*map(range, layer.kernel), range(0, w.shape[2], pic)):
        patch = layer.window_view(x, ky, kx)
        y = add(y, tree([multiply(patch[..., i, None], w[ky, kx, i]) for i in range(first, first + pic)]))
    return y


def input_gradient(layer: Conv, poc: int, w: Float32, dy: Float32, dx: Float32) -> Float32:
    """Return the gradient of the padded input.

    ``poc``: output channels of a tree.
    ``dy``: gradient of the output.
    ``dx``: zeros of the padded input's shape, which are overwritten.

    ky and kx descend, so that an input's terms are added in ascending order of the outputs.
    """
    for ky, kx, first in product(*(range(k)[::-1] for k in layer.kernel), range(0, w.shape[4], poc)):
        view = layer.window_view(dx, ky, kx)
        terms = [multiply(w[ky, kx, :, :, o].T, dy[..., o, None]) for o in range(first, first + poc)]
        view[...] = add(view, tree(terms))
    return dx


def weight_gradient(layer: Conv, ph: int, x: Float32, dy: Float32, v: Float32) -> Float32:
    """Return the velocity ``v`` with the gradient of the weights folded into it.

    ``ph``: output columns of a tree.
    ``x``: padded input.
    ``dy``: gradient of the output.
    """
    windows = np.stack([layer.window_view(x, *tap) for tap in layer.taps()])
    windows = windows.reshape(*layer.kernel, *windows.shape[1:]).swapaxes(-1, -2)[..., None]
    for frame, oy, first in product(*map(range, dy.shape[:2]), range(0, dy.shape[2], ph)):
        terms = [multiply(windows[:, :, frame, oy, ox], dy[frame, oy, ox]) for ox in range(first, first + ph)]
        v = add(v, tree(terms))
    return v
