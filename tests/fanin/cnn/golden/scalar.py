"""Convolutions, pools and im2col read word by word off docs/systems/layers.md, "Numbers", in another way.

Every sum is a list of terms in its order; nothing is vectorised, padded or reversed.
"""

from functools import reduce
from itertools import product

import numpy as np

from fanin.golden.fp32 import add, multiply

ZERO = np.float32(0)


def fold(terms, start=ZERO):
    return reduce(add, terms, start)


def tree(terms):
    if len(terms) == 1:
        return terms[0]
    pairs = [add(terms[k], terms[k + 1]) for k in range(0, len(terms) - 1, 2)]
    return tree(pairs + terms[len(pairs) * 2 :])


def chunks(numbers, size):
    numbers = list(numbers)
    return [numbers[k : k + size] for k in range(0, len(numbers), size)]


def _seen(layer, oy, ox, ky, kx):
    """Row and column of the input."""
    return oy * layer.stride[0] + ky - layer.padding[0], ox * layer.stride[1] + kx - layer.padding[1]


def _inside(layer, y, x):
    return 0 <= y < layer.input.h and 0 <= x < layer.input.w


def _word(layer, frame, y, x, channel):
    return frame[y, x, channel] if _inside(layer, y, x) else ZERO


def _seers(layer, y, x):
    """The windows that saw an input, ascending, each with the place where."""
    for oy, ox, ky, kx in product(*map(range, (layer.output.h, layer.output.w, *layer.kernel))):
        if _seen(layer, oy, ox, ky, kx) == (y, x):
            yield oy, ox, ky, kx


def _lanes(layer, p):
    return (1, 1) if layer.kind == "dwconv" else (p.pic, p.poc)


def conv(layer, p, weights, frame):
    ic, oc = layer.group
    frame = frame.reshape(layer.input.h, layer.input.w, layer.input.c)
    y = np.empty((layer.output.h, layer.output.w, layer.output.c), np.float32)
    for oy, ox, o in np.ndindex(y.shape):
        terms = []
        for ky, kx, lanes in product(*map(range, layer.kernel), chunks(range(ic), _lanes(layer, p)[0])):
            at = _seen(layer, oy, ox, ky, kx)
            words = [_word(layer, frame, *at, o // oc * ic + i) for i in lanes]
            terms.append(tree([multiply(x, weights[ky, kx, i, o]) for x, i in zip(words, lanes, strict=True)]))
        y[oy, ox, o] = fold(terms)
    return y


def conv_input_gradient(layer, p, weights, dy):
    ic, oc = layer.group
    dx = np.empty((layer.input.h, layer.input.w, layer.input.c), np.float32)
    for y, x, i in np.ndindex(dx.shape):
        group = chunks(range(i // ic * oc, (i // ic + 1) * oc), _lanes(layer, p)[1])
        dx[y, x, i] = fold(
            tree([multiply(weights[ky, kx, i % ic, o], dy[oy, ox, o]) for o in lanes])
            for oy, ox, ky, kx in _seers(layer, y, x)
            for lanes in group
        )
    return dx


def conv_weight_gradient(layer, p, velocity, frame, dy):
    ic, oc = layer.group
    frame = frame.reshape(layer.input.h, layer.input.w, layer.input.c)
    v = np.empty_like(velocity)
    for ky, kx, i, o in np.ndindex(v.shape):
        terms = [
            tree(
                [
                    multiply(
                        _word(layer, frame, *_seen(layer, oy, ox, ky, kx), o // oc * ic + i), dy[oy, ox, o]
                    )
                    for ox in columns
                ]
            )
            for oy in range(layer.output.h)
            for columns in chunks(range(layer.output.w), p.ph)
        ]
        v[ky, kx, i, o] = fold(terms, velocity[ky, kx, i, o])
    return v


def max_pool(layer, frame):
    y = np.empty((layer.output.h, layer.output.w, layer.output.c), np.float32)
    place = np.empty(y.shape, np.uint32)
    for oy, ox, c in np.ndindex(y.shape):
        words = [
            (_word(layer, frame, *at, c), ky * layer.kernel[1] + kx)
            for ky, kx in product(*map(range, layer.kernel))
            if _inside(layer, *(at := _seen(layer, oy, ox, ky, kx)))
        ]
        numbers = [word for word in words if not np.isnan(word[0])]
        nans = [word for word in words if np.isnan(word[0])]
        y[oy, ox, c], place[oy, ox, c] = (
            nans[0] if nans else max(numbers, key=lambda w: 0.0 if abs(w[0]) < 2.0**-126 else float(w[0]))
        )
    return y, place


def avg_pool(layer, frame):
    y = np.empty((layer.output.h, layer.output.w, layer.output.c), np.float32)
    for oy, ox, c in np.ndindex(y.shape):
        window = product(*map(range, layer.kernel))
        total = fold(_word(layer, frame, *_seen(layer, oy, ox, *at), c) for at in window)
        y[oy, ox, c] = multiply(total, np.float32(1 / (layer.kernel[0] * layer.kernel[1])))
    return y


def im2col(layer, frame):
    y = np.empty((layer.output.h, layer.output.w, *layer.kernel, layer.input.c), np.float32)
    for oy, ox, ky, kx, c in np.ndindex(y.shape):
        y[oy, ox, ky, kx, c] = _word(layer, frame, *_seen(layer, oy, ox, ky, kx), c)
    return y.reshape(layer.output.h, layer.output.w, layer.output.c)


def spread(layer, term):
    """The fold, for every input, of ``term(oy, ox, ky, kx, channel)`` of the windows that saw it."""
    dx = np.empty((layer.input.h, layer.input.w, layer.input.c), np.float32)
    for y, x, c in np.ndindex(dx.shape):
        dx[y, x, c] = fold(t for at in _seers(layer, y, x) if (t := term(*at, c)) is not None)
    return dx
