"""The compiled kernels have the bits of the readable ones, on every kind of layer, odd words included."""

import numpy as np
import pytest

from fanin.cnn.golden import compiled, layers
from tests.fanin.cnn.golden import cases
from tests.fanin.cnn.golden.cases import CASES
from tests.support import new_seed


def same(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(
        np.ascontiguousarray(found).view(np.uint32), np.ascontiguousarray(expected).view(np.uint32)
    )


@pytest.mark.parametrize("special", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("name", CASES)
def test_compiled_is_readable(name, special):
    rng = np.random.default_rng(new_seed())
    layer, p = CASES[name]
    state = cases.state(rng, layer, special)
    other = dict(state)
    for train in (False, True):
        for _ in range(3):
            x, dy = cases.inputs(rng, layer, special=special), cases.gradient(rng, layer, special=special)
            y, saved = layers.forward(layer, p, state, x, train=train)
            for found, expected in zip(
                compiled.forward(layer, p, other, x, train=train), (y, saved), strict=True
            ):
                same(found, expected)
            if train and layer.inputs:
                expected = layers.backward(layer, p, state, saved, dy)
                found = compiled.backward(layer, p, other, saved, dy)
                for one, two in zip(found, expected, strict=True):
                    same(one, two)
            for part, array in state.items():
                same(other[part], array)


@pytest.mark.parametrize("name", ["conv", "dense", "online_norm"])
def test_what_rounding_would_lift_to_the_least_number_is_zero(name):
    """(1 + 2^-13)·(1 − 2^-13) is below 1, and rounds to 1; all times 2^-126."""
    rng = np.random.default_rng(new_seed())
    layer, p = CASES[name]
    choices = np.array([1 + 2.0**-13, 1 - 2.0**-13, 1, -1 - 2.0**-13], np.float32) * np.float32(2.0**-63)
    (x,), dy = cases.inputs(rng, layer), cases.gradient(rng, layer)
    x, dy = rng.choice(choices, x.shape), rng.choice(choices, dy.shape)
    state = {part: rng.choice(choices, array.shape) for part, array in cases.state(rng, layer).items()}
    state |= {part: np.zeros_like(state[part]) for part in ("mean", "velocity") if part in state}
    other = dict(state)
    y, saved = layers.forward(layer, p, state, [x])
    same(compiled.forward(layer, p, other, [x])[0], y)
    found = compiled.backward(layer, p, other, saved, dy)
    same(found[0], layers.backward(layer, p, state, saved, dy)[0])
    for part, array in state.items():
        same(other[part], array)
