"""A layer's state as the words of its memory: what ``load`` takes and ``dump`` gives.

docs/systems/cluster.md, "Interface of a layer".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fanin.cnn.golden.state import NORM_STATE, State, zero_state
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Layer, Parallelism
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.golden.fp32 import Float32

_MEMORY_ORDER = (0, 1, 4, 2, 5, 3, 6)  # of the axes of `_blocks`: (ky, kx, g, ig, og, i, o)
Words = npt.NDArray[np.uint32]


def state_image(layer: Layer, p: Parallelism, state: State) -> Words:
    """All ``layer.state_words``: weights in memory order and then velocities; of online normalisation each of
    ``NORM_STATE`` in turn.
    """
    order = [_ordered(layer, p, state[name]) for name in _names(layer)]
    return np.concatenate([np.empty(0, np.float32), *order]).view(np.uint32)


def state_of_image(layer: Layer, p: Parallelism, words: npt.ArrayLike) -> State:
    """The state of which these are the words. Raises ValueError where their number is another."""
    image = np.asarray(words, dtype=np.uint32)
    if image.shape != (layer.state_words,):
        raise ValueError(f"{layer.kind} has {layer.state_words} words of state, not {image.size}")
    names = _names(layer)
    shapes = {name: array.shape for name, array in zero_state(layer).items()}
    parts = np.split(image.view(np.float32), max(len(names), 1))
    return {name: _restored(layer, p, part, shapes[name]) for name, part in zip(names, parts, strict=False)}


def _names(layer: Layer) -> tuple[str, ...]:
    if isinstance(layer, OnlineNorm):
        return NORM_STATE
    return ("weights", "velocity") if layer.parameters else ()


def _blocks(layer: Layer, p: Parallelism) -> tuple[int, ...] | None:
    """Axes of a convolution's weights, channels split into (ig, i), g, (og, o).

    None where memory has the words as they are; of a depthwise convolution, too, since its lanes are groups.
    """
    if not isinstance(layer, Conv) or isinstance(layer, DepthwiseConv):
        return None
    ic, oc = layer.group
    return (*layer.kernel, ic // p.pic, p.pic, layer.groups, oc // p.poc, p.poc)


def _ordered(layer: Layer, p: Parallelism, array: Float32) -> Float32:
    blocks = _blocks(layer, p)
    return array.ravel() if blocks is None else array.reshape(blocks).transpose(_MEMORY_ORDER).ravel()


def _restored(layer: Layer, p: Parallelism, part: Float32, shape: tuple[int, ...]) -> Float32:
    blocks = _blocks(layer, p)
    if blocks is not None:
        part = part.reshape([blocks[axis] for axis in _MEMORY_ORDER]).transpose(np.argsort(_MEMORY_ORDER))
    return part.reshape(shape).copy()
