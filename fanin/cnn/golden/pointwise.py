"""Layers that take a word and give a word, bit for bit: docs/systems/cluster.md, "Numbers"."""

from __future__ import annotations

import numpy as np

from fanin.cnn.golden.kernels import Kernels
from fanin.cnn.golden.state import Frames, State
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.golden.fp32 import Float32, add

_LEAST = np.float32(2.0**-126)
_ZERO = np.float32(0)
_SIX = np.float32(6)


def comparable(x: Float32) -> Float32:
    """As a comparison takes it: subnormals are zeros, as they are to ⊕ and ⊗."""
    return np.where(np.abs(x) < _LEAST, _ZERO, x)


def bias(state: State, x: Frames) -> Frames:
    """x ⊕ b."""
    return add(x, state["weights"])


def bias_back(state: State, gradient: Frames, kernels: Kernels) -> Frames:
    """The gradient itself; the bias' is folded into the velocity."""
    state["velocity"] = kernels.fold(gradient.reshape(-1, gradient.shape[-1]), state["velocity"])
    return gradient


def relu(layer: Relu, x: Frames) -> Frames:
    """max(x, 0), of relu6 at most 6; a NaN passes."""
    y = np.where(np.signbit(x) & ~np.isnan(x), _ZERO, x)
    return np.where(y > _SIX, _SIX, y) if isinstance(layer, Relu6) else y


def relu_back(layer: Relu, y: Frames, gradient: Frames) -> Frames:
    """The gradient where the output is a NaN, or above 0, and of relu6 below 6."""
    passes = comparable(y) > 0
    if isinstance(layer, Relu6):
        passes &= y < _SIX
    return np.where(passes | np.isnan(y), gradient, _ZERO)


def concat_back(layer: Concat, gradient: Frames) -> tuple[Frames, ...]:
    """Each input's channels."""
    ends = np.cumsum([shape.c for shape in layer.inputs])
    return tuple(np.split(gradient, ends[:-1], axis=-1))
