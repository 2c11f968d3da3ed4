# amaranth: UnusedElaboratable=no
"""GlobalAvgPool: bit for bit, both ways, while any side is slow; and as fast as its cost says."""

from itertools import pairwise

import pytest

from fanin.cnn.layers import global_avg_pool
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.hdl.layers.global_pool import GlobalAvgPool
from fanin.hdl.layers.interface import Mode
from tests.hdl.layers.frames import check, starts
from tests.support import new_seed, simulate, slow

SHAPES = [
    (Shape(3, 4, 6), 2),
    (Shape(2, 3, 10), 1),
    *slow((Shape(1, 1, 3), 3), (Shape(2, 2, 12), 1), (Shape(5, 1, 8), 1)),
]
every_shape = pytest.mark.parametrize(("shape", "lanes"), SHAPES)


def pool(shape, **options):
    return global_avg_pool.GlobalAvgPool(inputs=(shape,), **{"gradient": True, **options})


@every_shape
def test_it_equals_the_golden_model_while_any_side_stalls(shape, lanes):
    check(GlobalAvgPool, pool(shape), Parallelism(pi=lanes, po=lanes), seed=new_seed(), frames=12)


def test_without_a_gradient_it_goes_forward_only():
    layer = pool(Shape(2, 2, 2), gradient=False)
    check(GlobalAvgPool, layer, Parallelism(), mode=Mode.EVALUATE, seed=new_seed())


@every_shape
def test_frames_follow_one_another_as_fast_as_the_cost_says(shape, lanes):
    layer, p = pool(shape), Parallelism(pi=lanes, po=lanes)
    cycles = check(GlobalAvgPool, layer, p, seed=new_seed(), stall=0, frames=5)
    taken, given = starts(cycles["features[0]"], 5), starts(cycles["outputs"], 5)
    rows, positions = shape.c // lanes, shape.h * shape.w
    assert taken == [taken[0] + frame * layer.cycles(p) for frame in range(5)]
    assert [b - a for a, b in pairwise(given)] == 4 * [layer.cycles(p)]
    ends = cycles["features[0]"][rows * (positions - 1) : rows * positions]
    assert cycles["outputs"][:rows] == [cycle + 15 for cycle in ends]
    back = starts(cycles["input_gradients[0]"], 5)
    assert back[0] == cycles["gradients"][rows - 1] + 8
    if positions > 1:
        assert back == [back[0] + frame * rows * positions for frame in range(5)]


def test_shares_are_offered_before_anyone_is_ready():
    dut = GlobalAvgPool(layer=pool(Shape(2, 1, 1)), parallelism=Parallelism())
    offered = []

    async def process(ctx):
        ctx.set(dut.input_gradients[0].ready, 0)
        await ctx.tick().repeat(40)
        offered.append(ctx.get(dut.input_gradients[0].valid))

    simulate(dut, drive={"gradients": [[0x3F800000]]}, processes=[process], idle=60, stall=0, seed=0)
    assert offered == [1]


@pytest.mark.slow
def test_sums_in_block_ram_are_the_same():
    check(GlobalAvgPool, pool(Shape(2, 2, 70)), Parallelism(), seed=new_seed())
