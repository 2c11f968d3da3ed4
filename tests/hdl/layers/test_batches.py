"""Batches: which frames go forward between which updates, job after job, beside a count in Python."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.layers.batches import BatchControl
from fanin.hdl.layers.interface import Mode
from tests.support import new_seed

ETA, LAST_ETA = 0xBF800000, 0xBF000000


def _run(jobs, *, busy):
    """Events of every job (mode, frames, batch); frames and updates take about ``busy`` cycles.

    An event is "frame", "update" with its eta, or "done"; what must not happen raises AssertionError.
    """
    seed = new_seed()
    rng = random.Random(seed)
    dut = BatchControl()
    events = []

    async def train(ctx, frames):
        admitted = finished = awaited = cycle = 0
        updating = None
        while True:
            admit = ctx.get(dut.admit) and admitted < frames and rng.random() < 0.7
            finish = finished < admitted and rng.random() < 1 / busy
            updated = updating is not None and rng.random() < 1 / busy
            for name, value in {"admitted": admit, "finished": finish, "updated": updated}.items():
                ctx.set(getattr(dut, name), value)
            if ctx.get(dut.update):
                assert finished == admitted > awaited
                assert updating is None
                updating = ctx.get(dut.eta)
                events[-1].append(("update", updating))
            elif updating is not None:
                assert not ctx.get(dut.admit)
                assert ctx.get(dut.eta) == updating
            if ctx.get(dut.done) and cycle:
                break
            admitted, finished, cycle = admitted + admit, finished + finish, cycle + 1
            events[-1] += [("frame", 0)] * admit
            if updated:
                updating, awaited = None, finished
            await ctx.tick()
        events[-1].append(("done", 0))
        assert not ctx.get(dut.admit)

    async def main(ctx):
        for mode, frames, batch in jobs:
            events.append([])
            control = {"mode": mode, "frames": frames, "batch": batch, "eta": ETA, "last_eta": LAST_ETA}
            ctx.set(dut.control, control | {"start": 1})
            assert ctx.get(dut.done)
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            if mode == Mode.TRAIN:
                assert not ctx.get(dut.done)
                await train(ctx, frames)
                continue
            for _ in range(frames):
                assert ctx.get(dut.done)
                assert ctx.get(dut.admit) == (mode == Mode.EVALUATE)
                ctx.set(dut.admitted, ctx.get(dut.admit))
                await ctx.tick()
            ctx.set(dut.admitted, 0)

    sim = Simulator(dut)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    sim.run()
    return events


def _expected(frames, batch):
    events = []
    while frames:
        size = min(batch, frames)
        frames -= size
        events += [("frame", 0)] * size + [("update", ETA if frames else LAST_ETA)]
    return [*events, ("done", 0)]


@pytest.mark.parametrize("busy", [1, 12])
def test_every_frame_goes_forward_between_its_batch_s_updates(busy):
    sizes = [(10, 4), (3, 5), (8, 4), (5, 1), (1, 1), (0, 3), (7, 7)]
    jobs = [(Mode.TRAIN, *size) for size in sizes]
    assert _run(jobs, busy=busy) == [_expected(*size) for size in sizes]


def test_evaluation_admits_all_and_moving_parameters_none():
    jobs = [
        (Mode.LOAD, 5, 2),
        (Mode.EVALUATE, 9, 2),
        (Mode.TRAIN, 3, 2),
        (Mode.EVALUATE, 4, 3),
        (Mode.TRAIN, 2, 2),
        (Mode.DUMP, 5, 2),
    ]
    assert _run(jobs, busy=3) == [[], [], _expected(3, 2), [], _expected(2, 2), []]


def test_latencies():
    dut = BatchControl()

    async def cycles_until(ctx, signal):
        cycles = 0
        while not ctx.get(signal):
            await ctx.tick()
            ctx.set(dut.control.start, 0)
            ctx.set(dut.updated, 0)
            cycles += 1
        return cycles

    async def main(ctx):
        ctx.set(dut.control, {"mode": Mode.TRAIN, "frames": 2, "batch": 1, "start": 1})
        assert await cycles_until(ctx, dut.admit) == 3
        ctx.set(dut.admitted, 1)
        await ctx.tick()
        ctx.set(dut.admitted, 0)
        ctx.set(dut.finished, 1)
        await ctx.tick()
        ctx.set(dut.finished, 0)
        assert ctx.get(dut.update)  # one cycle later
        await ctx.tick()
        ctx.set(dut.updated, 1)
        assert await cycles_until(ctx, dut.admit) == 3

    sim = Simulator(dut)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    sim.run()
