"""Operations and array types of layers' golden kernels (docs/systems/layers.md, "Numbers").

Each layer's file has its golden kernel, which calls the operations of ``Kernels``. ``fanin.cnn.golden``
provides them twice, readable and compiled, with identical bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
SavedWords = npt.NDArray[np.uint32]  #: words saved for the backward pass, axes frame, word
Frames = Float32  #: maps of frames, axes frame, row, column, channel
State = dict[str, Float32]  #: arrays of a layer's state, by name

_MIN_NORMAL = np.float32(2.0**-126)


class Kernels(NamedTuple):
    """Bit-exact operations of the hardware.

    Axes of convolutions' maps are (frame, row, column, group, channel). Axes of weights are (ky, kx, ic, group,
    oc).
    """

    add: Callable[[Float32, Float32], Float32]  #: a ⊕ b, elementwise
    multiply: Callable[[npt.ArrayLike, npt.ArrayLike], Float32]  #: a ⊗ b, elementwise
    fold: Callable[[Float32, Float32], Float32]  #: (terms by row, start values): sums in order
    exp: Callable[[Float32], Float32]  #: e^t, elementwise
    reciprocal: Callable[[Float32], Float32]  #: 1/x, elementwise
    outputs: Callable[..., Float32]  #: (layer, pic, padded input, weights)
    input_gradient: Callable[..., Float32]  #: (layer, poc, weights, gradient, zeros of padded input)
    weight_gradient: Callable[..., Float32]  #: (layer, ph, padded input, gradient, velocity)
    norm_forward: Callable[..., tuple[Frames, Float32]]  #: (layer, state, input, true to train)
    norm_backward: Callable[..., Frames]  #: (layer, state, saved words, gradient)


def comparable(x: Float32) -> Float32:
    """Return operands of a comparison, with subnormals flushed to zero as by ⊕ and ⊗."""
    return np.where(np.abs(x) < _MIN_NORMAL, np.float32(0), x)


def inverse(count: int) -> np.float32:
    """Return RN(1 / count), the factor of a mean. ``count`` is at most 2^24."""
    return np.float32(1) / np.float32(count)


def zero_parameters(shape: tuple[int, ...]) -> State:
    """Return trained words and their velocities, all zero: arrays ``weights`` and ``velocity`` of ``shape``."""
    return {name: np.zeros(shape, np.float32) for name in ("weights", "velocity")}
