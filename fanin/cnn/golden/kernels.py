"""What takes most of a network's time; there is one version to read, and a compiled one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fanin.cnn.golden.state import Frames, State
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.golden.fp32 import Float32


class Kernels(NamedTuple):
    """Convolutions' arrays have the axes frame, row, column, group, channel; weights ky, kx, ic, group, oc."""

    outputs: Callable[[Conv, int, Float32, Float32], Float32]  #: of layer, pic, padded input, weights
    input_gradient: Callable[[Conv, int, Float32, Float32, Float32], Float32]
    #: of layer, poc, weights, the outputs' gradient, zeros for the padded input's
    weight_gradient: Callable[[Conv, int, Float32, Float32, Float32], Float32]
    #: of layer, ph, padded input, the outputs' gradient, velocity
    fold: Callable[[Float32, Float32], Float32]  #: of terms by row, and where they start
    norm_forward: Callable[[OnlineNorm, State, Frames, bool], tuple[Frames, Float32]]
    norm_backward: Callable[[OnlineNorm, State, Float32, Frames], Frames]
