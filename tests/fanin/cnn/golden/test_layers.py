"""The golden models of layers, against the page read word by word, and against the reals."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.cnn.golden import layers
from fanin.cnn.golden.functions import exp, reciprocal, rsqrt
from fanin.cnn.layers import online_norm
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.relu import Relu
from fanin.golden.fp32 import add, multiply
from tests.fanin.cnn.golden import cases, scalar
from tests.fanin.cnn.golden.cases import CASES
from tests.support import new_seed

SPECIAL = [0.0, 0.02]


def same(found, expected):
    """Bit for bit."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found.view(np.uint32), np.ascontiguousarray(expected).view(np.uint32))


def passed(name, special):
    """A layer with its state before and after, inputs, output, saved words, gradients."""
    rng = np.random.default_rng(new_seed())
    layer, p = CASES[name]
    before = cases.state(rng, layer, special)
    state = dict(before)
    x, dy = cases.inputs(rng, layer, special=special), cases.gradient(rng, layer, special=special)
    y, saved = layers.forward(layer, p, state, x)
    return layer, p, before, state, x, y, saved, dy, layers.backward(layer, p, state, saved, dy)


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("conv", "dw", "dense"))])
def test_convolutions_add_in_the_stated_order(name, special):
    layer, p, before, state, (x,), y, saved, dy, gradients = passed(name, special)
    same(y, np.array([scalar.conv(layer, p, before["weights"], frame) for frame in x]))
    same(saved.view(np.float32), x.reshape(len(x), -1))
    velocity = before["velocity"]
    for frame, back in zip(x, dy, strict=True):
        velocity = scalar.conv_weight_gradient(layer, p, velocity, frame, back)
    same(state["velocity"], velocity)
    same(state["weights"], before["weights"])
    if layer.gradient:
        expected = [scalar.conv_input_gradient(layer, p, before["weights"], back) for back in dy]
        same(gradients[0], np.array(expected).reshape(x.shape))
    else:
        assert gradients == ()


@pytest.mark.parametrize("wrong", [{"pic": 4}, {"poc": 3}, {"ph": 4}])
def test_lanes_that_do_not_divide_are_refused(wrong):
    layer, p = CASES["conv"]
    x, y = cases.inputs(np.random.default_rng(0), layer), cases.gradient(np.random.default_rng(0), layer)
    with pytest.raises(ValueError, match="does not divide 6 → 4 channels and 6 columns"):
        layers.forward(layer, replace(p, **wrong), cases.state(np.random.default_rng(0), layer), x)
    with pytest.raises(ValueError, match="does not divide"):
        layers.backward(layer, replace(p, **wrong), {}, x[0].reshape(cases.FRAMES, -1).view(np.uint32), y)


def spread(layer, term, frames):
    return np.array([scalar.spread(layer, lambda *at, n=n: term(n, *at)) for n in range(frames)])


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", ["max_pool", "max_pool_apart"])
def test_max_pool(name, special):
    layer, _, _, _, (x,), y, saved, dy, (dx,) = passed(name, special)
    expected, place = zip(*(scalar.max_pool(layer, frame) for frame in x), strict=True)
    same(y, np.array(expected))
    place = np.array(place)
    np.testing.assert_array_equal(saved, place.reshape(len(x), -1))

    def found(n, oy, ox, ky, kx, c):
        return dy[n, oy, ox, c] if place[n, oy, ox, c] == ky * layer.kernel[1] + kx else None

    same(dx, spread(layer, found, len(x)))


@pytest.mark.parametrize(
    ("window", "place"),
    [
        ([1, 3, 3, 2], 1),
        ([-0.0, 0.0, 1e-40, -1], 0),
        ([-1e-40, -0.0, 0.0, -1], 0),
        ([5, np.nan, np.inf, np.nan], 1),
        ([-np.inf, -np.inf, -np.inf, -np.inf], 0),
    ],
)
def test_which_word_is_the_largest(window, place):
    layer = MaxPool(inputs=(Shape(2, 2, 1),), kernel=(2, 2), stride=(1, 1), gradient=True)
    x = np.array(window, np.float32).reshape(1, 2, 2, 1)
    y, saved = layers.forward(layer, Parallelism(), {}, [x])
    assert saved.tolist() == [[place]]
    same(y.ravel(), x.ravel()[[place]])


@pytest.mark.parametrize("special", SPECIAL)
def test_avg_pool_and_im2col(special):
    layer, _, _, _, (x,), y, _, dy, (dx,) = passed("avg_pool", special)
    same(y, np.array([scalar.avg_pool(layer, frame) for frame in x]))
    share = multiply(dy, np.float32(1 / 6))
    same(dx, spread(layer, lambda n, oy, ox, ky, kx, c: share[n, oy, ox, c], len(x)))
    layer, _, _, _, (x,), y, _, dy, (dx,) = passed("im2col", special)
    same(y, np.array([scalar.im2col(layer, frame) for frame in x]))
    parts = dy.reshape(*dy.shape[:3], *layer.kernel, layer.input.c)
    same(dx, spread(layer, lambda n, oy, ox, ky, kx, c: parts[n, oy, ox, ky, kx, c], len(x)))


@pytest.mark.parametrize("special", SPECIAL)
def test_global_avg_pool(special):
    layer, _, _, _, (x,), y, _, dy, (dx,) = passed("global_avg_pool", special)
    for n, c in np.ndindex(len(x), layer.input.c):
        same(y[n, 0, 0, c], multiply(scalar.fold(x[n, :, :, c].ravel()), np.float32(1 / 30)))
        share = add(scalar.ZERO, multiply(dy[n, 0, 0, c], np.float32(1 / 30)))
        same(dx[n, :, :, c], np.full((5, 6), share))
    (dx,) = layers.backward(
        layer, Parallelism(), {}, np.zeros((len(x), 0), np.uint32), np.float32(-0.0) * np.ones_like(y)
    )
    same(dx, np.zeros_like(x))


@pytest.mark.parametrize("special", SPECIAL)
def test_bias_and_add(special):
    layer, _, before, state, (x,), y, _, dy, (dx,) = passed("bias", special)
    same(y, add(x, before["weights"]))
    for c in range(layer.input.c):
        same(state["velocity"][c], scalar.fold(dy[..., c].ravel(), before["velocity"][c]))
    same(dx, dy)
    assert passed("bias_first", special)[-1] == ()
    _, _, _, _, (a, b), y, _, dy, gradients = passed("add", special)
    same(y, add(a, b))
    for dx in gradients:
        same(dx, dy)


def test_relu_and_relu6():
    """Word by word: y, and whether the gradient passes."""
    x = np.array([-1, -np.inf, -0.0, -1e-40, 0.0, 1e-40, 1, 6, 7, np.inf, np.nan], np.float32)
    cut = [0, 0, 0, 0, 0, 1e-40, 1, 6]
    for name, top, passes in [("relu", [7, np.inf], [6, 7, 8, 9, 10]), ("relu6", [6, 6], [6, 10])]:
        for masked in (True, False):
            layer = type(CASES[name][0])(inputs=(Shape(1, 1, len(x)),), gradient=True, masked=masked)
            y, saved = layers.forward(layer, Parallelism(), {}, [x.reshape(1, 1, 1, -1)])
            same(y.ravel(), np.array([*cut, *top, np.nan], np.float32))
            if masked:
                assert saved.tolist() == [[sum(1 << n for n in passes)]]
            else:
                same(saved.view(np.float32), y.reshape(1, -1))
            (dx,) = layers.backward(layer, Parallelism(), {}, saved, np.full(y.shape, 2, np.float32))
            assert np.nonzero(dx.ravel())[0].tolist() == passes


def test_a_mask_has_a_bit_of_each_output_from_the_least_significant_on():
    """Five positions of 7 channels: 35 bits in two words a frame, a word of a frame's own at its start."""
    layer = Relu(inputs=(Shape(1, 5, 7),), gradient=True)
    passes = np.arange(70).reshape(2, 1, 5, 7) % 3 == 0
    y, saved = layers.forward(layer, Parallelism(), {}, [np.where(passes, 1, -1).astype(np.float32)])
    bits = [int("".join("01"[int(p)] for p in frame.ravel()[::-1]), 2) for frame in passes]
    assert saved.tolist() == [[word & 0xFFFFFFFF, word >> 32] for word in bits]
    (dx,) = layers.backward(layer, Parallelism(), {}, saved, np.ones(y.shape, np.float32))
    same(dx, passes.astype(np.float32))


def test_concat_input_and_output_copy():
    layer, _, _, _, x, y, _, dy, gradients = passed("concat", 0.02)
    same(y, np.concatenate(x, axis=-1))
    same(np.concatenate(gradients, axis=-1), dy)
    assert [dx.shape[-1] for dx in gradients] == [shape.c for shape in layer.inputs]
    for name in ("output", "input"):
        layer, p = CASES[name]
        (x,) = cases.inputs(np.random.default_rng(new_seed()), layer, special=0.02)
        same(layers.forward(layer, p, {}, [x])[0], x)


@pytest.mark.parametrize("special", SPECIAL)
def test_online_norm_channel_by_channel(special):
    layer, _, before, state, (x,), y, saved, dy, (dx,) = passed("online_norm", special)
    alpha, beta, k = np.float32(0.9), np.float32(1 - 0.9), np.float32(1 - 0.8)
    share, minus = np.float32(1 / 30), np.negative
    for c in range(layer.input.c):
        m, s, r, ey, e1 = (before[name][c] for name in online_norm.STATE)
        for n, frame in enumerate(x):
            d = [add(word, minus(m)) for word in frame[..., c].ravel()]
            made = [multiply(word, r) for word in d]
            same(y[n, :, :, c].ravel(), np.array(made))
            same(saved[n].view(np.float32)[[c, *range(6 + c, 186, 6)]], np.array([r, *made]))
            a = [add(g, minus(multiply(ey, v))) for g, v in zip(dy[n, :, :, c].ravel(), made, strict=True)]
            back = [add(multiply(g, r), minus(e1)) for g in a]
            same(dx[n, :, :, c].ravel(), np.array(back))
            t1 = scalar.fold(multiply(g, v) for g, v in zip(a, made, strict=True))
            ey, e1 = (
                add(old, multiply(k, multiply(total, share)))
                for old, total in ((ey, t1), (e1, scalar.fold(back)))
            )
            mean = multiply(scalar.fold(d), share)
            square = multiply(scalar.fold(multiply(v, v) for v in d), share)
            m = add(m, multiply(beta, mean))
            rest = add(square, minus(multiply(beta, multiply(mean, mean))))
            s = add(multiply(alpha, s), multiply(beta, rest))
            r = rsqrt(add(s, np.float32(1e-5)))
        same(np.array([state[name][c] for name in online_norm.STATE]), np.array([m, s, r, ey, e1], np.float32))


def test_in_evaluation_nothing_is_saved_and_the_norm_stands_still():
    rng = np.random.default_rng(new_seed())
    for layer, p in CASES.values():
        state = cases.state(rng, layer)
        before = dict(state)
        y, saved = layers.forward(layer, p, state, cases.inputs(rng, layer), train=False)
        assert saved.shape == (cases.FRAMES, 0)
        for name, array in state.items():
            same(array, before[name])
        if layer.kind == "online_norm":
            assert len(y) == cases.FRAMES


def test_the_loss():
    layer, _, _, _, (x, labels), p, saved, _, (dx,) = passed("soft_cross_loss", 0.0)
    for n, row in enumerate(x.reshape(len(x), -1)):
        e = exp(add(row, -row.max()))
        same(p[n].ravel(), multiply(e, reciprocal(scalar.fold(e))))
    same(dx, add(p, -labels))
    assert (layer.saved_words, saved.shape) == (0, (len(x), 7))
    assert np.isnan(layers.forward(layer, Parallelism(), {}, [x * np.float32(np.nan), labels])[0]).all()


def test_update():
    layer, _ = CASES["dense"]
    state = cases.state(np.random.default_rng(new_seed()), layer, special=0.05)
    before = dict(state)
    eta, momentum = np.float32(-0.1), np.float32(0.9)
    layers.update(layer, state, eta, momentum)
    same(state["weights"], add(before["weights"], multiply(eta, before["velocity"])))
    same(state["velocity"], multiply(momentum, before["velocity"]))


@pytest.mark.parametrize("name", [name for name, (layer, _) in CASES.items() if layer.inputs])
def test_a_batch_is_its_frames_one_by_one(name):
    rng = np.random.default_rng(new_seed())
    layer, p = CASES[name]
    state = cases.state(rng, layer)
    apart = dict(state)
    x, dy = cases.inputs(rng, layer), cases.gradient(rng, layer)
    y, saved = layers.forward(layer, p, state, x)
    gradients = layers.backward(layer, p, state, saved, dy)
    ahead = [layers.forward(layer, p, apart, [part[n : n + 1] for part in x]) for n in range(cases.FRAMES)]
    same(y, np.concatenate([made for made, _ in ahead]))
    np.testing.assert_array_equal(saved, np.concatenate([kept for _, kept in ahead]))
    if layer.kind != "soft_cross_loss":
        assert saved.shape == (cases.FRAMES, layer.saved_words)
    back = [layers.backward(layer, p, apart, saved[n : n + 1], dy[n : n + 1]) for n in range(cases.FRAMES)]
    for whole, *parts in zip(gradients, *back, strict=True):
        same(whole, np.concatenate(parts))
    for key, array in state.items():
        same(array, apart[key])
