# amaranth: UnusedElaboratable=no
"""WordSelect: every word at its index, after the latency."""

import pytest

from fanin.hdl.layers.word_select import WordSelect
from tests.support import simulate


@pytest.mark.parametrize(("count", "latency"), [(1, 0), (2, 1), (16, 1), (17, 2), (300, 3)])
def test_the_word_at_the_index_comes_after_the_latency(count, latency):
    dut = WordSelect(count=count)
    seen = []

    async def run(ctx):
        for n, word in enumerate(dut.words):
            ctx.set(word, 1000 + n)
        for n in range(count):
            ctx.set(dut.index, n)
            await ctx.delay(1e-12)
            if latency:
                await ctx.tick().repeat(latency)
            seen.append(ctx.get(dut.o))

    assert dut.latency == latency
    simulate(dut, processes=[run], idle=count * latency + 10)
    assert seen == [1000 + n for n in range(count)]


def test_a_word_at_least():
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        WordSelect(count=0)
