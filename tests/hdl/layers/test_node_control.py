# amaranth: UnusedElaboratable=no
"""JobControl: a job begins, ends, and fails when nothing moves."""

import pytest

from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.node_control import JobControl
from fanin.hdl.layers.registers import Failure
from tests.support import simulate

GOOD = {"mode": Mode.TRAIN, "frames": 9, "batch": 4, "eta": 5, "last_eta": 6, "momentum": 7}


def controlled(process, *, timeout=50):
    dut = JobControl()
    found = {}

    async def run(ctx):
        ctx.set(dut.timeout, timeout)
        await process(ctx, dut, found)
        found["end"] = True

    simulate(dut, processes=[run], idle=400)
    assert found["end"]
    return found


async def begin(ctx, dut, settings=GOOD):
    ctx.set(dut.settings, settings)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    assert ctx.get(dut.running)
    await ctx.tick()


def test_a_job_begins_two_cycles_after_start_and_ends_with_done():
    async def process(ctx, dut, found):
        ctx.set(dut.done, 1)  # of the job before
        await begin(ctx, dut)
        assert ctx.get(dut.control.start)
        assert ctx.get(dut.control.frames) == 9
        ctx.set(dut.settings, {**GOOD, "frames": 1})
        await ctx.tick()
        assert not ctx.get(dut.control.start)
        ctx.set(dut.done, 0)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.running)
        assert ctx.get(dut.control.frames) == 9
        ctx.set(dut.done, 1)
        await ctx.tick()
        assert not ctx.get(dut.running)
        assert not ctx.get(dut.failed)

    controlled(process)


@pytest.mark.parametrize(
    "settings", [{"frames": 0}, {"batch": 0}, {"mode": Mode.EVALUATE, "frames": 0}], ids=str
)
def test_a_job_of_nothing_fails_and_the_next_one_runs(settings):
    async def process(ctx, dut, found):
        await begin(ctx, dut, GOOD | settings)
        assert not ctx.get(dut.control.start)
        assert (ctx.get(dut.running), ctx.get(dut.failed), ctx.get(dut.cause)) == (0, 1, Failure.SETTINGS)
        await begin(ctx, dut)
        assert (ctx.get(dut.running), ctx.get(dut.failed), ctx.get(dut.cause)) == (1, 0, Failure.NONE)

    controlled(process)


def test_loading_needs_no_frames():
    async def process(ctx, dut, found):
        await begin(ctx, dut, {"mode": Mode.LOAD})
        assert ctx.get(dut.running)

    controlled(process)


def test_a_job_in_which_nothing_moves_fails_for_good():
    async def process(ctx, dut, found):
        await begin(ctx, dut)
        for _ in range(3):  # as long as something moves now and then
            await ctx.tick().repeat(45)
            ctx.set(dut.moves, 1)
            await ctx.tick()
            ctx.set(dut.moves, 0)
            assert ctx.get(dut.running)
        expired = 0
        for _ in range(60):
            await ctx.tick()
            expired += ctx.get(dut.expired)
        assert expired == 1
        assert (ctx.get(dut.running), ctx.get(dut.failed), ctx.get(dut.cause)) == (0, 1, Failure.TIMEOUT)
        ctx.set(dut.start, 1)
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.running)

    controlled(process)


def test_an_error_of_memory_fails_the_job():
    async def process(ctx, dut, found):
        await begin(ctx, dut)
        ctx.set(dut.memory_error, 1)
        await ctx.tick()
        assert (ctx.get(dut.running), ctx.get(dut.cause)) == (0, Failure.MEMORY)

    controlled(process)
