"""Arithmetic that the golden kernels of layers are written in: docs/systems/cluster.md, "Numbers".

A layer's file has its kernel. ``fanin.cnn.golden`` gives the operations, readable or compiled ones with the
same bits, so that facts import no golden model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Saved = npt.NDArray[np.uint32]  #: of axes frame, word: words that a frame leaves in memory for its way back
Frames = Float32  #: of axes frame, row, column, channel
State = dict[str, Float32]  #: of a layer, by name

_LEAST = np.float32(2.0**-126)


class Kernels(NamedTuple):
    """Operations of the hardware, bit for bit.

    Convolutions' arrays have the axes frame, row, column, group, channel; weights ky, kx, ic, group, oc.
    """

    add: Callable[[Float32, Float32], Float32]  #: a ⊕ b, elementwise
    multiply: Callable[[npt.ArrayLike, npt.ArrayLike], Float32]  #: a ⊗ b, elementwise
    fold: Callable[[Float32, Float32], Float32]  #: sums in order: of terms by row, first values
    exp: Callable[[Float32], Float32]
    reciprocal: Callable[[Float32], Float32]
    outputs: Callable[..., Float32]  #: of layer, pic, padded input, weights
    input_gradient: Callable[..., Float32]  #: of layer, poc, weights, gradient, zeros of padded input
    weight_gradient: Callable[..., Float32]  #: of layer, ph, padded input, gradient, velocity
    norm_forward: Callable[..., tuple[Frames, Float32]]  #: of layer, state, input, whether it trains
    norm_backward: Callable[..., Frames]  #: of layer, state, saved words, gradient


def comparable(x: Float32) -> Float32:
    """Operands of a comparison: subnormals are zeros, as they are to ⊕ and ⊗."""
    return np.where(np.abs(x) < _LEAST, np.float32(0), x)


def inverse(count: int) -> np.float32:
    """RN(1 / count), by which means are taken; count is at most 2^24."""
    return np.float32(1) / np.float32(count)


def parameters(shape: tuple[int, ...]) -> State:
    """Zeros: trained words and their velocities."""
    return {name: np.zeros(shape, np.float32) for name in ("weights", "velocity")}
