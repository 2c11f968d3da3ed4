"""Memory image of a layer's state: the words of the streams ``load`` and ``dump``, in memory order.

The order is in docs/systems/layers.md, "Interface of a layer".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.cnn.layers.arithmetic import State
from fanin.cnn.layers.layer import Layer, Parallelism
from fanin.golden.fp32 import Float32

_MEMORY_ORDER = (0, 1, 4, 2, 5, 3, 6)  # of the axes of ``Layer.memory_blocks``: (ky, kx, g, ig, og, i, o)
Words = npt.NDArray[np.uint32]


def state_image(layer: Layer, parallelism: Parallelism, state: State) -> Words:
    """Return the ``layer.state_words`` words of a state: weights, then velocities, in memory order.

    For online normalisation, the words are those of ``online_norm.STATE`` in order.
    """
    parts = [_ordered(layer, parallelism, state[name]) for name in layer.zero_state()]
    return np.concatenate([np.empty(0, np.float32), *parts]).view(np.uint32)


def state_of_image(layer: Layer, parallelism: Parallelism, words: npt.ArrayLike) -> State:
    """Return the state of a memory image. Raises ValueError if the number of words is wrong."""
    image = np.asarray(words, dtype=np.uint32)
    if image.shape != (layer.state_words,):
        raise ValueError(f"{layer.kind} has {layer.state_words} words of state, not {image.size}")
    zeros = layer.zero_state()
    parts = np.split(image.view(np.float32), max(len(zeros), 1))
    named_parts = zip(zeros.items(), parts, strict=False)
    return {name: _restored(layer, parallelism, part, array.shape) for (name, array), part in named_parts}


def _ordered(layer: Layer, parallelism: Parallelism, array: Float32) -> Float32:
    blocks = layer.memory_blocks(parallelism)
    return array.ravel() if blocks is None else array.reshape(blocks).transpose(_MEMORY_ORDER).ravel()


def _restored(layer: Layer, parallelism: Parallelism, part: Float32, shape: tuple[int, ...]) -> Float32:
    blocks = layer.memory_blocks(parallelism)
    if blocks is not None:
        part = part.reshape([blocks[axis] for axis in _MEMORY_ORDER]).transpose(np.argsort(_MEMORY_ORDER))
    return part.reshape(shape).copy()
