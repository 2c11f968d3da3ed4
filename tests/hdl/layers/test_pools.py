# amaranth: UnusedElaboratable=no
"""AvgPool: bit for bit, both ways, while any side is slow; and as fast as its cost says."""

from itertools import pairwise

import pytest

from fanin.hdl.layers.avg_pool import AvgPool
from fanin.hdl.layers.interface import Mode
from fanin.layers import window
from fanin.layers.layer import Parallelism, Shape
from tests.hdl.layers.frames import check, starts
from tests.support import new_seed, slow

POOLS = {"avg": (AvgPool, window.AvgPool)}
WINDOWS = {
    "apart": {"kernel": (2, 2), "stride": (2, 2)},
    "overlapping, padded": {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1, 1, 1)},
    "with gaps": {"kernel": (1, 2), "stride": (2, 3)},
    "tall": {"kernel": (3, 1), "stride": (1, 1), "padding": (2, 0, 0, 0)},
}
every_pool = pytest.mark.parametrize("kind", POOLS)
every_window = pytest.mark.parametrize("where", ["apart", "overlapping, padded", *slow(*list(WINDOWS)[2:])])


def pool(kind, where, shape, *, gradient=True):
    make, facts = POOLS[kind]
    return make, facts(inputs=(shape,), gradient=gradient, **WINDOWS[where])


@every_pool
@every_window
@pytest.mark.parametrize("lanes", [2, *slow(1, 4)])
def test_it_equals_the_golden_model_while_any_side_stalls(kind, where, lanes):
    make, layer = pool(kind, where, Shape(4, 6, 4))
    check(make, layer, Parallelism(pi=lanes, po=lanes), seed=new_seed(), frames=5)


@every_pool
def test_without_a_gradient_it_goes_forward_only(kind):
    make, layer = pool(kind, "apart", Shape(4, 4, 2), gradient=False)
    check(make, layer, Parallelism(), mode=Mode.EVALUATE, seed=new_seed())


@every_pool
@every_window
@pytest.mark.parametrize(
    ("shape", "lanes"), [(Shape(4, 6, 4), 2), *slow((Shape(3, 3, 1), 1), (Shape(3, 5, 9), 1))]
)
def test_frames_follow_one_another_as_fast_as_the_cost_says(kind, where, shape, lanes):
    make, layer = pool(kind, where, shape)
    p = Parallelism(pi=lanes, po=lanes)
    cycles = check(make, layer, p, seed=new_seed(), stall=0, frames=6)
    for way in ("outputs", "input_gradients[0]"):
        begins = starts(cycles[way], 6)
        assert [b - a for a, b in pairwise(begins)][2:] == 3 * [layer.cycles(p)]
