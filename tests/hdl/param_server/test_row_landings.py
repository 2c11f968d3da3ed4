"""A row has landed with its last word, not before."""

import random

from fanin.hdl.param_server.row_landings import RowLandings
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed


def test_a_row_is_told_of_3_cycles_after_its_last_word_and_each_once():
    dut, rng = RowLandings(), random.Random(new_seed())
    words, whole, told = rng.randrange(3, 40), [], []

    async def watch(ctx):
        cycle = 0
        async for _, _, row in ctx.tick().sample(dut.row):
            told.extend([cycle] * row)
            cycle += 1

    async def main(ctx):
        ctx.set(dut.words, words)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        total, cycle = 0, 1
        while len(whole) < 50:
            # bursts of up to 16 words, a word a cycle on average
            landed = rng.choice([0, rng.randrange(17)])
            for now in (landed, *(0,) * landed):
                before, total = total // words, total + now
                whole.extend([cycle] * (total // words - before))
                ctx.set(dut.landed, now)
                await ctx.tick()
                cycle += 1
        await ctx.tick().repeat(200)

    Bench(dut, [], seed=0).run(main, watch)
    assert len(told) == len(whole)
    late = [after - before for before, after in zip(whole, told, strict=True)]
    assert min(late) == 3
    assert max(late) <= 3 * 6  # five rows of 3 words may land at once
