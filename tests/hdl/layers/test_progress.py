# amaranth: UnusedElaboratable=no
"""Progress: transfers of any stream, and the first stream that waits."""

import pytest

from fanin.hdl.layers.progress import Progress
from tests.support import simulate

COUNT = 5


def watched(process):
    dut = Progress(count=COUNT)
    ends = []

    async def run(ctx):
        await process(ctx, dut)
        ends.append(1)

    simulate(dut, processes=[run], idle=200)
    assert ends


@pytest.mark.parametrize("stream", range(COUNT))
def test_a_transfer_of_any_stream_shows_two_cycles_later(stream):
    async def process(ctx, dut):
        ctx.set(dut.valid, 1 << stream)
        await ctx.tick().repeat(4)
        assert not ctx.get(dut.moves)
        ctx.set(dut.ready, 0b11111)
        await ctx.tick()
        ctx.set(dut.ready, 0)
        await ctx.tick()
        assert ctx.get(dut.moves)
        await ctx.tick()
        assert not ctx.get(dut.moves)

    watched(process)


@pytest.mark.parametrize(
    ("valid", "ready", "first"), [(0b10110, 0b00010, 2), (0b10000, 0, 4), (0b00001, 0b11110, 0), (6, 6, None)]
)
def test_the_first_stream_that_waits_is_found(valid, ready, first):
    async def process(ctx, dut):
        ctx.set(dut.valid, valid)
        ctx.set(dut.ready, ready)
        await ctx.tick().repeat(2 * COUNT + 2)
        for _ in range(2 * COUNT):
            await ctx.tick()
            assert ctx.get(dut.waits) == (first is not None)
            if first is not None:
                assert ctx.get(dut.number) == first

    watched(process)


def test_a_stream_that_waited_once_is_forgotten():
    async def process(ctx, dut):
        ctx.set(dut.valid, 4)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.waits)
        ctx.set(dut.ready, 4)
        await ctx.tick().repeat(2 * COUNT + 2)
        assert not ctx.get(dut.waits)

    watched(process)
