"""The words of ``load`` and ``dump``."""

from itertools import product

import numpy as np
import pytest

from fanin.cnn.golden.image import state_image, state_of_image
from fanin.cnn.layers import online_norm
from tests.fanin.cnn.golden import cases
from tests.fanin.cnn.golden.cases import CASES
from tests.support import new_seed


def memory_order(layer, p):
    """Of each word of memory, which weight it is: the page's loops."""
    rows, columns = layer.kernel
    if layer.kind == "dwconv":
        for ky, kx, cg, o in product(range(rows), range(columns), range(layer.input.c // p.poc), range(p.poc)):
            yield ky, kx, 0, cg * p.poc + o
        return
    ic, oc = layer.group
    loops = (rows, columns, layer.groups, ic // p.pic, oc // p.poc, p.pic, p.poc)
    for ky, kx, g, ig, og, i, o in product(*map(range, loops)):
        yield ky, kx, ig * p.pic + i, g * oc + og * p.poc + o


@pytest.mark.parametrize("name", CASES)
def test_words_are_the_state_in_memory_order(name):
    layer, p = CASES[name]
    state = cases.state(np.random.default_rng(new_seed()), layer, special=0.1)
    words = state_image(layer, p, state)
    assert words.dtype == np.uint32
    assert words.shape == (layer.state_words,)
    if layer.kind in ("conv", "dwconv", "dense"):
        order = list(memory_order(layer, p))
        expected = [state[part][at] for part in ("weights", "velocity") for at in order]
    else:
        expected = [
            word for part in (*online_norm.STATE, "weights", "velocity") for word in state.get(part, ())
        ]
    assert words.tolist() == np.array(expected, np.float32).view(np.uint32).tolist()
    restored = state_of_image(layer, p, words)
    assert list(restored) == list(state)
    for part, array in state.items():
        assert restored[part].dtype == np.float32
        np.testing.assert_array_equal(restored[part].view(np.uint32), array.view(np.uint32))


def test_another_number_of_words_is_refused():
    layer, p = CASES["online_norm"]
    with pytest.raises(ValueError, match="online_norm has 30 words of state, not 29"):
        state_of_image(layer, p, np.zeros(29, np.uint32))
