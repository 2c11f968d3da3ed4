"""Pools and im2col, bit for bit: docs/systems/cluster.md, "Numbers".

Arrays have the axes frame, row, column, and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.cnn.golden.folds import fold, inverse
from fanin.cnn.golden.pointwise import comparable
from fanin.cnn.golden.state import Frames, Saved
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.window import Window
from fanin.golden.fp32 import Float32, add, multiply

Array = npt.NDArray[Any]


def pad(layer: Window, x: Array) -> Array:
    """``x`` in a frame of zeros."""
    top, left, bottom, right = layer.padding
    return np.pad(x, ((0, 0), (top, bottom), (left, right), *(x.ndim - 3) * ((0, 0),)))


def crop(layer: Window, x: Float32) -> Float32:
    """What :func:`pad` was given."""
    top, left, *_ = layer.padding
    return x[:, top : top + layer.input.h, left : left + layer.input.w]


def seen(layer: Window, padded: Array, ky: int, kx: int) -> Array:
    """A view: what each window has at (ky, kx); axes frame, output row, output column, …"""
    rows, columns = (
        slice(k, k + step * (size - 1) + 1, step)
        for k, step, size in zip((ky, kx), layer.stride, (layer.output.h, layer.output.w), strict=True)
    )
    return padded[:, rows, columns]


def places(layer: Window) -> Iterator[tuple[int, int]]:
    """Of a window, in raster order."""
    rows, columns = layer.kernel
    return product(range(rows), range(columns))


def spread(layer: Window, count: int, terms: dict[tuple[int, int], Float32]) -> Frames:
    """Fold, for every input, over the windows that saw it, of ``terms`` at the place where they saw it.

    ky and kx descend: so output rows and columns ascend.
    """
    dx = pad(layer, np.zeros((count, layer.input.h, layer.input.w, layer.input.c), np.float32))
    for place in reversed(list(places(layer))):
        view = seen(layer, dx, *place)
        view[...] = add(view, terms[place])
    return crop(layer, dx)


def max_pool(layer: MaxPool, x: Frames) -> tuple[Frames, Saved]:
    """The largest of every window, and its place in it."""
    padded, there = pad(layer, x), pad(layer, np.ones(x.shape, bool))
    best = np.full((len(x), layer.output.h, layer.output.w, layer.output.c), -np.inf, np.float32)
    place = np.full(best.shape, -1)
    for number, at in enumerate(places(layer)):
        word = seen(layer, padded, *at)
        larger = np.isnan(word) | (comparable(word) > comparable(best)) | (place < 0)
        wins = seen(layer, there, *at) & ~np.isnan(best) & larger
        best, place = np.where(wins, word, best), np.where(wins, number, place)
    return best, place.astype(np.uint32)


def max_pool_back(layer: MaxPool, saved: Saved, gradient: Frames) -> Frames:
    """The gradient goes where the largest was."""
    place = saved.reshape(gradient.shape)
    terms = {at: np.where(place == n, gradient, np.float32(0)) for n, at in enumerate(places(layer))}
    return spread(layer, len(gradient), terms)


def avg_pool(layer: AvgPool, x: Frames) -> Frames:
    """The mean of every window, padding included."""
    padded = pad(layer, x)
    total = fold(np.stack([seen(layer, padded, *at) for at in places(layer)]))
    return multiply(total, _share(layer))


def avg_pool_back(layer: AvgPool, gradient: Frames) -> Frames:
    """Every input of a window gets its share."""
    share = multiply(gradient, _share(layer))
    return spread(layer, len(gradient), dict.fromkeys(places(layer), share))


def _share(layer: AvgPool) -> np.float32:
    return inverse(layer.kernel[0] * layer.kernel[1])


def global_avg_pool(layer: GlobalAvgPool, x: Frames) -> Frames:
    """The mean of every channel."""
    positions = np.swapaxes(x.reshape(len(x), -1, layer.input.c), 0, 1)
    mean = multiply(fold(positions), inverse(len(positions)))
    return mean[:, None, None]


def global_avg_pool_back(layer: GlobalAvgPool, gradient: Frames) -> Frames:
    """Every input gets its share: a fold of one term, so that there is no −0."""
    shape = layer.input
    share = add(np.float32(0), multiply(gradient, inverse(shape.h * shape.w)))
    return np.tile(share, (1, shape.h, shape.w, 1))


def im2col(layer: Im2col, x: Frames) -> Frames:
    """Windows as channels: (ky, kx, c)."""
    padded = pad(layer, x)
    return np.concatenate([seen(layer, padded, *at) for at in places(layer)], -1)


def im2col_back(layer: Im2col, gradient: Frames) -> Frames:
    """Overlapping windows are added."""
    parts = np.split(gradient, layer.kernel[0] * layer.kernel[1], axis=-1)
    return spread(layer, len(gradient), dict(zip(places(layer), parts, strict=True)))
