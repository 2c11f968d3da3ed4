"""Compiled kernels of the CNN's golden model: bits of the readable kernels, hundreds of times faster.

Each public function has a compiled kernel of the same name with an underscore. The function flushes subnormal
operands, orders the axes for the kernel, and makes the result's NaNs canonical. ``_add`` and ``_multiply``
flush subnormal results. The innermost loops run over independent elements, so that numba vectorises them.

T is the sum of an adder tree, in the order of ``folds.tree``.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit

from fanin.cnn.golden import layers
from fanin.cnn.golden.functions import LOWER_BITS, RSQRT_SEEDS, RSQRT_TERMS, SEED_INDEX_BITS, seed_table
from fanin.cnn.layers.arithmetic import Float32, Frames, State
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.codec.facts import EXPONENT_BIAS, FRACTION_BITS, SPECIAL_EXPONENT
from fanin.golden.fp32 import canonical, flushed

_MIN_NORMAL = np.float32(2.0**-126)
_MIN_NORMAL_64 = 2.0**-126
_ZERO = np.float32(0)
_ONE = np.float32(1)
_compiled = njit(cache=True, error_model="numpy")
_SEEDS = seed_table(RSQRT_SEEDS)
_TERMS = tuple(map(np.float32, RSQRT_TERMS))
_NAN, _INFINITY = np.float32(np.nan), np.float32(np.inf)


@_compiled
def _add(a, b):
    total = a + b
    return _ZERO * total if abs(total) < _MIN_NORMAL else total


@_compiled
def _multiply(a, b):
    exact = np.float64(a) * np.float64(b)
    return np.float32(0.0 * exact if abs(exact) < _MIN_NORMAL_64 else exact)


@_compiled
def _tree(terms):
    """Add the rows in place, in the order of T. The sum is in the first row."""
    count = terms.shape[0]
    while count > 1:
        half = count // 2
        for k in range(half):
            for n in range(terms.shape[1]):
                terms[k, n] = _add(terms[2 * k, n], terms[2 * k + 1, n])
        if count % 2:
            for n in range(terms.shape[1]):
                terms[half, n] = terms[count - 1, n]
        count = half + count % 2


@_compiled
def _accumulate(total, factors, rows, terms):
    """Set ``total`` to total ⊕ T over the lanes of factors ⊗ rows. ``terms``: scratch memory for products."""
    if len(factors) == 1:
        for n in range(len(total)):
            total[n] = _add(total[n], _multiply(factors[0], rows[0, n]))
        return
    for lane in range(len(factors)):
        for n in range(len(total)):
            terms[lane, n] = _multiply(factors[lane], rows[lane, n])
    _tree(terms)
    for n in range(len(total)):
        total[n] = _add(total[n], terms[0, n])


@_compiled
def _outputs(x, w, sy, sx, pic, y):
    """Add the convolution of ``x`` to ``y``. Axes of ``w``: (ky, kx, group, input channel, output channel)."""
    terms = np.empty((pic, w.shape[4]), np.float32)
    for frame, oy, ox, g in np.ndindex(y.shape[:4]):
        for ky in range(w.shape[0]):
            for kx in range(w.shape[1]):
                words = x[frame, oy * sy + ky, ox * sx + kx, g]
                for i in range(0, len(words), pic):
                    _accumulate(y[frame, oy, ox, g], words[i : i + pic], w[ky, kx, g, i : i + pic], terms)


@_compiled
def _input_gradient(w, dy, sy, sx, poc, dx):
    """Add each input's gradient to ``dx``. Axes of ``w``: (ky, kx, group, output channel, input channel)."""
    terms = np.empty((poc, w.shape[4]), np.float32)
    for frame, oy, ox, g in np.ndindex(dy.shape[:4]):
        gradients = dy[frame, oy, ox, g]
        for ky in range(w.shape[0]):
            for kx in range(w.shape[1]):
                total = dx[frame, oy * sy + ky, ox * sx + kx, g]
                for o in range(0, len(gradients), poc):
                    _accumulate(total, gradients[o : o + poc], w[ky, kx, g, o : o + poc], terms)


@_compiled
def _weight_gradient(x, dy, sy, sx, ph, v):
    """Fold the weights' gradient into ``v``. Axes of ``v``: (ky, kx, group, input channel, output channel)."""
    terms = np.empty((ph, v.shape[4]), np.float32)
    factors = np.empty(ph, np.float32)
    for frame in range(dy.shape[0]):
        for oy in range(dy.shape[1]):
            for first in range(0, dy.shape[2], ph):
                for ky, kx, g, i in np.ndindex(v.shape[:4]):
                    for lane in range(ph):
                        factors[lane] = x[frame, oy * sy + ky, (first + lane) * sx + kx, g, i]
                    _accumulate(v[ky, kx, g, i], factors, dy[frame, oy, first : first + ph, g], terms)


@_compiled
def _fold(terms, total):
    for row in range(terms.shape[0]):
        for n in range(len(total)):
            total[n] = _add(total[n], terms[row, n])


@_compiled
def _rsqrt(x):
    bits = np.int64(np.float32(x).view(np.uint32))
    exponent, fraction = bits >> FRACTION_BITS & SPECIAL_EXPONENT, bits & (1 << FRACTION_BITS) - 1
    if exponent == 0:
        return _INFINITY
    if x != x or x < 0:
        return _NAN
    if exponent == SPECIAL_EXPONENT:
        return _ZERO
    is_odd = exponent - EXPONENT_BIAS & 1
    seed = _SEEDS[is_odd << SEED_INDEX_BITS - 1 | fraction >> FRACTION_BITS - SEED_INDEX_BITS + 1]
    significand = fraction | EXPONENT_BIAS + is_odd << FRACTION_BITS
    m, upper = _float_of(significand), _float_of(significand >> LOWER_BITS << LOWER_BITS)
    square = seed * seed
    e = (_ONE - upper * square) - (m - upper) * square
    refined = seed + seed * (e * (_TERMS[0] + e * (_TERMS[1] + e * _TERMS[2])))
    scale = (EXPONENT_BIAS + is_odd - exponent >> 1) << FRACTION_BITS
    return _float_of(np.int64(np.float32(refined).view(np.uint32)) + scale)


@_compiled
def _float_of(bits):
    return np.uint32(bits).view(np.float32)


@_compiled
def _norm_forward(x, constants, train, mean, variance, scale, y, scales):
    """Set ``y`` and the frames' ``scales``; update the state if ``train``. Axes: frame, position, channel."""
    alpha, beta, _, epsilon, mean_factor = constants
    sums, squares = np.empty_like(mean), np.empty_like(mean)
    for frame in range(x.shape[0]):
        scales[frame] = scale
        sums[:] = _ZERO
        squares[:] = _ZERO
        for position in range(x.shape[1]):
            for c in range(x.shape[2]):
                d = _add(x[frame, position, c], -mean[c])
                y[frame, position, c] = _multiply(d, scale[c])
                sums[c] = _add(sums[c], d)
                squares[c] = _add(squares[c], _multiply(d, d))
        if train:
            for c in range(x.shape[2]):
                shift, square = _multiply(sums[c], mean_factor), _multiply(squares[c], mean_factor)
                excess = _add(square, -_multiply(beta, _multiply(shift, shift)))
                mean[c] = _add(mean[c], _multiply(beta, shift))
                variance[c] = _add(_multiply(alpha, variance[c]), _multiply(beta, excess))
                scale[c] = _rsqrt(_add(variance[c], epsilon))


@_compiled
def _norm_backward(y, scales, dy, constants, ey, e1, dx):
    """Set ``dx``, and update ``ey`` and ``e1`` after each frame. Axes: frame, position, channel."""
    _, _, gain, _, mean_factor = constants
    sums, products = np.empty_like(ey), np.empty_like(ey)
    for frame in range(y.shape[0]):
        sums[:] = _ZERO
        products[:] = _ZERO
        for position in range(y.shape[1]):
            for c in range(y.shape[2]):
                a = _add(dy[frame, position, c], -_multiply(ey[c], y[frame, position, c]))
                gradient = _add(_multiply(a, scales[frame, c]), -e1[c])
                products[c] = _add(products[c], _multiply(a, y[frame, position, c]))
                sums[c] = _add(sums[c], gradient)
                dx[frame, position, c] = gradient
        for c in range(y.shape[2]):
            ey[c] = _add(ey[c], _multiply(gain, _multiply(products[c], mean_factor)))
            e1[c] = _add(e1[c], _multiply(gain, _multiply(sums[c], mean_factor)))


def outputs(layer: Conv, pic: int, x: Float32, w: Float32) -> Float32:
    """Return the result of ``convolution.outputs``."""
    y = np.zeros((len(x), layer.output.h, layer.output.w, *w.shape[3:]), np.float32)
    _outputs(flushed(x), np.ascontiguousarray(flushed(w).transpose(0, 1, 3, 2, 4)), *layer.stride, pic, y)
    return canonical(y)


def input_gradient(layer: Conv, poc: int, w: Float32, dy: Float32, dx: Float32) -> Float32:
    """Return the result of ``convolution.input_gradient``."""
    w = np.ascontiguousarray(flushed(w).transpose(0, 1, 3, 4, 2))
    _input_gradient(w, flushed(dy), *layer.stride, poc, dx)
    return canonical(dx)


def weight_gradient(layer: Conv, ph: int, x: Float32, dy: Float32, v: Float32) -> Float32:
    """Return the result of ``convolution.weight_gradient``."""
    total = np.ascontiguousarray(flushed(v).transpose(0, 1, 3, 2, 4))
    _weight_gradient(flushed(x), flushed(dy), *layer.stride, ph, total)
    return canonical(total).transpose(0, 1, 3, 2, 4)


def fold(terms: Float32, start: Float32) -> Float32:
    """Return the result of ``folds.fold`` for rows."""
    total = flushed(start)
    _fold(flushed(terms), total)
    return canonical(total)


def norm_forward(layer: OnlineNorm, state: State, x: Frames, train: bool) -> tuple[Frames, Float32]:
    """Return the result of ``normalise.online_norm``."""
    mean, variance, scale = (flushed(state[name]) for name in ("mean", "variance", "scale"))
    flat = flushed(x).reshape(len(x), -1, layer.input.c)
    y, scales = np.empty_like(flat), np.empty((len(x), layer.input.c), np.float32)
    _norm_forward(flat, layer.constants, train, mean, variance, scale, y, scales)
    scales[0] = state["scale"]
    if train:
        state |= {"mean": canonical(mean), "variance": canonical(variance), "scale": canonical(scale)}
    y = canonical(y)
    return y.reshape(x.shape), np.concatenate([scales, y.reshape(len(x), -1)], axis=1)


def norm_backward(layer: OnlineNorm, state: State, replay: Float32, gradient: Frames) -> Frames:
    """Return the result of ``normalise.online_norm_back``."""
    channels = layer.input.c
    y = flushed(replay[:, channels:]).reshape(len(replay), -1, channels)
    dy, dx = flushed(gradient).reshape(y.shape), np.empty_like(y)
    ey, e1 = flushed(state["ey"]), flushed(state["e1"])
    _norm_backward(y, flushed(replay[:, :channels]), dy, layer.constants, ey, e1, dx)
    state |= {"ey": canonical(ey), "e1": canonical(e1)}
    return canonical(dx).reshape(gradient.shape)


KERNELS = layers.READABLE._replace(
    fold=fold,
    outputs=outputs,
    input_gradient=input_gradient,
    weight_gradient=weight_gradient,
    norm_forward=norm_forward,
    norm_backward=norm_backward,
)
forward = partial(layers.forward, kernels=KERNELS)
backward = partial(layers.backward, kernels=KERNELS)
