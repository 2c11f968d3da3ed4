# amaranth: UnusedElaboratable=no
"""Backward alone, with memories of a few lines of Python around it."""

import random

import pytest

from fanin.hdl.glm.backward import Backward, GradientLane
from fanin.hdl.glm.replay import Replay, backward_latency
from tests.hdl.glm.engine_job import random_job
from tests.support import new_seed, simulate, slow

START = 4  # the shape settles
RECENT_JUNK = 12345  # what memory shows of a row that is being written


def _run(job, *, stall, seed):
    """Cycles of the scales, the weights at the end, the updates, and the cycles of takes and updates."""
    dut = Backward(lanes=job.lanes, banks=job.banks, depth=job.chunks)
    rows = job.weights.reshape(job.chunks, job.lanes).tolist()
    words = job.words()
    updates, takes, written, scaled = [], [], [], []
    own = random.Random(seed)

    async def scales(ctx):
        await ctx.tick().repeat(START + 1)
        cycle = START + 1
        for scale in job.micro_scales():
            while own.random() < stall:
                await ctx.tick()
                cycle += 1
            ctx.set(dut.scale.payload, scale)
            ctx.set(dut.scale.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.scale.ready)
                cycle += 1
            ctx.set(dut.scale.valid, 0)
            scaled.append(cycle - 1)

    async def memories(ctx):
        await ctx.tick().repeat(START)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        cycle, pending, asked, being_written = START + 1, [], None, None
        announced = None
        while True:
            if announced is not None:  # the weights of this cycle are for that chunk
                chunk, both = announced
                being_written = (chunk, list(ctx.get(dut.weights)))
                updates.append((chunk, both))
                written.append(cycle)
            if asked is not None:
                ctx.set(dut.stored, asked)
            if len(pending) == 2:
                word = pending.pop(0)
                ctx.set(dut.word, words[word] if word is not None else 0)
            _, _, take, chunk, update = await ctx.tick().sample(dut.take, dut.chunk, dut.update)
            pending.append(len(takes) if take else None)
            if take:
                takes.append(cycle)
            asked = rows[chunk]
            if being_written is not None:
                if being_written[0] == chunk:
                    asked = [RECENT_JUNK] * job.lanes
                rows[being_written[0]] = being_written[1]
                being_written = None
            announced = (update.chunk, update.both) if update.valid else None
            cycle += 1

    micros = len(job.micro_scales())
    idle = 50 + micros * (job.chunks * job.planes + int(5 * stall))
    simulate(dut, settings=job.shape, processes=[scales, memories], seed=seed, idle=idle)
    assert len(scaled) == micros
    return scaled, [weight for row in rows for weight in row], updates, takes, written


@pytest.mark.parametrize(
    ("chunks", "planes"), [(1, 1), (3, 4), *slow((2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3))]
)
@pytest.mark.parametrize(("stall", "banks"), [(0.4, 2), (0, 8), *slow((0, 2), (0, 16))])
def test_weights_are_those_of_numpy_however_recent(chunks, planes, stall, banks):
    seed = new_seed()
    job = random_job(
        random.Random(seed), chunks=chunks, planes=planes, banks=banks, mini_batch=3, micros=14, epochs=1
    )
    _, rows, updates, takes, _ = _run(job, stall=stall, seed=seed)
    assert rows == _accumulated(job)
    micros = [chunk for _ in range(14) for chunk in range(chunks)]
    lasts = [(n + 1) % 3 == 0 or n == 13 for n in range(14) for _ in range(chunks)]
    assert updates == list(zip(micros, lasts, strict=True))
    assert len(takes) == 14 * chunks * planes


def _accumulated(job):
    job.mini_batch = 1  # the accumulating model does not know mini-batches
    return job.expected()[1]


@pytest.mark.parametrize("banks", [2, *slow(8, 16)])
def test_a_word_a_cycle_and_updates_as_late_as_it_says(banks):
    job = random_job(
        random.Random(1), lanes=2, chunks=2, planes=3, banks=banks, mini_batch=4, micros=8, epochs=1
    )
    scaled, _, _, takes, written = _run(job, stall=0, seed=1)
    assert takes == list(range(takes[0], takes[0] + 8 * 6))
    assert scaled == takes[::6]
    assert {w - t for w, t in zip(written, takes[2::3], strict=True)} == {backward_latency(banks)}
    assert backward_latency(banks) == {2: 5, 8: 6, 16: 7}[banks]


@pytest.mark.parametrize("component", [Backward, GradientLane, Replay])
def test_bad_banks_are_named(component):
    with pytest.raises(ValueError, match="banks must be even and at least 2, not 5"):
        component(banks=5)
