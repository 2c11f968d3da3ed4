# amaranth: UnusedElaboratable=no
"""SkewQueue: words in order, and how many of them waited."""

import pytest

from fanin.hdl.layers.skew import SkewQueue
from tests.hdl.layers.frames import collected
from tests.support import new_seed, simulate, slow


@pytest.mark.parametrize("depth", [5, *slow(70)])
@pytest.mark.parametrize("stall", [{}, {"o": 0.3}, {"o": 0.7}], ids=["full rate", "even", "full"])
def test_it_keeps_words_and_says_how_many_it_held(depth, stall):
    dut = SkewQueue(lanes=2, depth=depth)
    items = [[n, n + 1000] for n in range(6 * depth)]
    highest = []

    async def process(ctx):
        async for _, _, value in ctx.tick().sample(dut.highest):
            highest.append(value)

    log = simulate(
        dut, drive={"i": items}, collect={"o": len(items)}, stall=stall, processes=[process], seed=new_seed()
    )
    assert collected(log, "o") == items
    entered, left = ({cycle for cycle, _ in log[name]} for name in ("i", "o"))
    held, most = 0, 0
    for cycle in range(max(left) + 1):
        held += (cycle in entered) - (cycle in left)
        most = max(most, held)
    assert highest[-1] == most
    assert most == 1 or stall
