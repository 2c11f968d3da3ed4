# amaranth: UnusedElaboratable=no
"""JobControl: a job begins, ends, and fails when nothing moves."""

import pytest

from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.node_control import JobControl
from fanin.hdl.layers.registers import Failure
from tests.support import simulate

GOOD = {"mode": Mode.TRAIN, "frames": 9, "batch": 4, "eta": 5, "last_eta": 6, "momentum": 7}


def controlled(process, *, timeout=50, stateful=False):
    dut = JobControl(stateful=stateful)
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


def test_a_job_in_which_nothing_moves_fails_until_a_reset():
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


async def reset(ctx, dut, **beside):
    for name, value in {"reset": 1, **beside}.items():
        ctx.set(getattr(dut, name), value)
    await ctx.tick()
    for name in ("reset", *beside):
        ctx.set(getattr(dut, name), 0)


def test_a_reset_awaits_memory_and_then_clears_once():
    """Whatever the node does: idle, in a job, failed."""

    async def process(ctx, dut, found):
        for prepare in ("idle", "running", "failed"):
            if prepare != "idle":
                await begin(ctx, dut)
                await ctx.tick().repeat(3)
            if prepare == "failed":
                ctx.set(dut.link_failed, 1)
                await ctx.tick()
                ctx.set(dut.link_failed, 0)
                assert (ctx.get(dut.failed), ctx.get(dut.cause), ctx.get(dut.stop)) == (1, Failure.LINK, 1)
            await reset(ctx, dut)
            assert (ctx.get(dut.running), ctx.get(dut.failed), ctx.get(dut.resetting)) == (0, 0, 1)
            for _ in range(20):
                assert (ctx.get(dut.stop), ctx.get(dut.clear)) == (1, 0)
                await ctx.tick()
            ctx.set(dut.quiet, 1)
            await ctx.tick()
            assert (ctx.get(dut.stop), ctx.get(dut.clear)) == (1, 1)
            await ctx.tick()
            ctx.set(dut.quiet, 0)
            assert [ctx.get(getattr(dut, name)) for name in ("stop", "clear", "resetting")] == [0, 0, 0]
            await ctx.tick().repeat(10)
            assert not ctx.get(dut.clear)

    controlled(process)


def test_a_start_of_a_node_that_is_not_idle_is_refused():
    async def process(ctx, dut, found):
        await reset(ctx, dut, start=1)  # beside a reset
        assert (ctx.get(dut.refused), ctx.get(dut.running)) == (1, 0)
        ctx.set(dut.start, 1)  # during it
        await ctx.tick().repeat(2)
        ctx.set(dut.start, 0)
        assert (ctx.get(dut.refused), ctx.get(dut.resetting), ctx.get(dut.running)) == (1, 1, 0)
        ctx.set(dut.quiet, 1)
        await ctx.tick().repeat(8)
        await begin(ctx, dut)
        assert not ctx.get(dut.refused)
        ctx.set(dut.settings, {**GOOD, "frames": 1})
        ctx.set(dut.start, 1)  # during a job, which goes on
        await ctx.tick().repeat(2)
        ctx.set(dut.start, 0)
        assert (ctx.get(dut.refused), ctx.get(dut.running), ctx.get(dut.control.frames)) == (1, 1, 9)

    controlled(process)


def test_parameters_are_unknown_until_a_load_has_ended():
    async def process(ctx, dut, found):
        async def carry_out(mode):
            await begin(ctx, dut, {**GOOD, "mode": mode})
            ctx.set(dut.done, 1)
            await ctx.tick().repeat(10)
            assert not ctx.get(dut.running)
            return ctx.get(dut.cause)

        ctx.set(dut.quiet, 1)
        for _ in range(2):
            for mode in (Mode.TRAIN, Mode.EVALUATE, Mode.DUMP):
                assert await carry_out(mode) == Failure.UNLOADED
            for mode in (Mode.LOAD, Mode.TRAIN, Mode.DUMP):
                assert await carry_out(mode) == Failure.NONE
            await reset(ctx, dut)
            await ctx.tick().repeat(10)

    controlled(process, stateful=True)


@pytest.mark.parametrize(
    ("flag", "mode", "cause"),
    [
        ("misplaced", Mode.LOAD, Failure.ADDRESS),
        ("misplaced", Mode.TRAIN, Failure.ADDRESS),
        ("unready", Mode.TRAIN, Failure.CONNECTION),
        ("unready", Mode.LOAD, Failure.NONE),  # nothing goes through connections
    ],
)
def test_a_job_that_cannot_be_right_fails_before_it_begins(flag, mode, cause):
    async def process(ctx, dut, found):
        ctx.set(getattr(dut, flag), 1)
        await begin(ctx, dut, {**GOOD, "mode": mode})
        assert (ctx.get(dut.control.start), ctx.get(dut.cause)) == (cause is Failure.NONE, cause)
        ctx.set(getattr(dut, flag), 0)
        if cause is not Failure.NONE:
            await begin(ctx, dut)
            assert ctx.get(dut.running)

    controlled(process)
