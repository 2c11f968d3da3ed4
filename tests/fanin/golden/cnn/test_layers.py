"""The golden models of layers, against the page read word by word, and against the reals."""

import numpy as np
import pytest

from fanin.golden.cnn import layers
from tests.fanin.golden.cnn import cases, scalar
from tests.fanin.golden.cnn.cases import CASES
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
