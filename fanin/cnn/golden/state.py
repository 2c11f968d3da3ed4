"""What layers compute with: frames, and a layer's state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.layer import Layer
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.golden.fp32 import Float32

Saved = npt.NDArray[np.uint32]  #: of axes frame, word: what a frame leaves in memory for its way back
Frames = Float32  #: of axes frame, row, column, channel
State = dict[str, Float32]  #: of a layer, by name: see ``zero_state``

NORM_STATE = ("mean", "variance", "scale", "ey", "e1")  #: in memory order; scale is r = 1/σ


def zero_state(layer: Layer) -> State:
    """The state of a layer that has learned nothing.

    ``weights`` and ``velocity``, zeros: of a convolution (ky, kx, input channel of the group, output channel),
    of dense (1, 1, input word, output channel), of a bias (channel,). Of online normalisation ``NORM_STATE``,
    (channel,) each: mean 0, variance 1, scale 1, control terms 0. No other layer has any.
    """
    if isinstance(layer, Conv):
        return _parameters((*layer.kernel, layer.group[0], layer.output_channels))
    if isinstance(layer, Bias):
        return _parameters((layer.input.c,))
    if isinstance(layer, OnlineNorm):
        ones = ("variance", "scale")
        return {name: np.full(layer.input.c, name in ones, np.float32) for name in NORM_STATE}
    return {}


def _parameters(shape: tuple[int, ...]) -> State:
    return {name: np.zeros(shape, np.float32) for name in ("weights", "velocity")}
