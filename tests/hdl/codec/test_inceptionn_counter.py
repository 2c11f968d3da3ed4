# amaranth: UnusedElaboratable=no
"""GroupCounter: as many groups as a frame has, whatever its length and whenever they are stepped through."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.codec.facts import GROUPS
from fanin.hdl.codec.inceptionn.counter import GroupCounter
from tests.support import new_seed

LATENCY = 3
LONG = (2**32 - 1, 2**31, 2**16 + 1)  # of which not all groups are counted


def lengths(group, rng):
    """All up to ten groups' worth, in any order, some of them replaced by longer ones."""
    size = 4 * group
    short = [*range(1, 10 * size + 2)]
    rng.shuffle(short)
    return [rng.randrange(1, 40 * size) if rng.random() < 0.1 else length for length in short]


@pytest.mark.parametrize("group", GROUPS)
def test_every_frame_has_its_groups(group):
    dut = GroupCounter(group=group)
    seed = new_seed()
    rng = random.Random(seed)
    frames = lengths(group, rng)
    size = 4 * group
    done = []

    async def feed(ctx):
        for length in frames:
            while rng.random() < 0.3:
                await ctx.tick()
            ctx.set(dut.length.p, length)
            ctx.set(dut.length.valid, 1)
            await ctx.tick().until(dut.length.ready)
            ctx.set(dut.length.valid, 0)

    async def step(ctx):
        for index, length in enumerate(frames):
            for left in reversed(range(-(-length // size))):
                where = f"seed {seed}, frame {index} of {length} bytes, {left} groups behind"
                for _ in range(200):
                    if ctx.get(dut.valid) and rng.random() < 0.7:
                        break
                    await ctx.tick()
                else:
                    raise AssertionError(f"no group: {where}")
                assert ctx.get(dut.last) == (left == 0), where
                assert ctx.get(dut.tail) == (length - 1) % size, where
                ctx.set(dut.step, 1)
                await ctx.tick()
                ctx.set(dut.step, 0)
            done.append(length)

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(feed)
    sim.add_testbench(step)
    sim.run()
    assert done == frames


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("length", LONG)
def test_a_long_frame_comes_in_time_and_does_not_end_early(group, length):
    dut = GroupCounter(group=group)

    async def bench(ctx):
        ctx.set(dut.length.p, length)
        ctx.set(dut.length.valid, 1)
        await ctx.tick()
        ctx.set(dut.length.valid, 0)
        for _ in range(LATENCY - 1):
            assert not ctx.get(dut.valid)
            await ctx.tick()
        ctx.set(dut.step, 1)
        for _ in range(300):
            assert ctx.get(dut.valid)
            assert not ctx.get(dut.last)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
