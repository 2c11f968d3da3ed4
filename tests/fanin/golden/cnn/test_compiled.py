"""The compiled kernels have the bits of the readable ones, on every kind of layer, odd words included."""

import numpy as np
import pytest

from fanin.golden.cnn import compiled, layers
from tests.fanin.golden.cnn import cases
from tests.fanin.golden.cnn.cases import CASES
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


@pytest.mark.parametrize("exponent", [-126, -64, -63])
def test_what_nearly_underflows(exponent):
    """Sums and products about 2^-126: those below are zeros, also where rounding would lift them."""
    rng = np.random.default_rng(new_seed())
    for name in ("conv", "dense", "online_norm"):
        layer, p = CASES[name]
        tiny = np.float32(2.0**exponent)
        state = {part: array * tiny for part, array in cases.state(rng, layer).items()}
        other = dict(state)
        x = [part * (tiny if exponent > -100 else np.float32(1)) for part in cases.inputs(rng, layer)]
        y, saved = layers.forward(layer, p, state, x)
        assert exponent < -100 or ((y == 0) & (np.abs(x[0]).min() > 0)).any()
        same(compiled.forward(layer, p, other, x)[0], y)
        for one, two in zip(
            compiled.backward(layer, p, other, saved, y),
            layers.backward(layer, p, state, saved, y),
            strict=True,
        ):
            same(one, two)
        for part, array in state.items():
            same(other[part], array)
