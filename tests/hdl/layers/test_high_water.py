# amaranth: UnusedElaboratable=no
"""HighWater: the highest level is kept until it is cleared."""

import pytest

from fanin.hdl.layers.high_water import HighWater
from tests.support import simulate


def test_the_highest_level_is_kept_until_it_is_cleared():
    dut, found = HighWater(depth=7), []

    async def process(ctx):
        for level, clear in ((2, 0), (5, 0), (3, 0), (7, 0), (0, 0), (6, 1), (1, 0), (0, 0)):
            ctx.set(dut.level, level)
            ctx.set(dut.clear, clear)
            await ctx.tick()
            found.append(ctx.get(dut.most))

    simulate(dut, processes=[process], idle=20)
    assert found == [2, 5, 5, 7, 7, 0, 1, 1]


def test_a_fifo_of_no_depth_is_refused():
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        HighWater(depth=0)
