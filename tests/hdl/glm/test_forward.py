# amaranth: UnusedElaboratable=no
"""Forward alone: it reads the chunk it needs, keeps every word, and follows writes as they come."""

import random

from fanin.hdl.glm.forward import Forward, forward_latency
from tests.hdl.glm.activations import Queued
from tests.hdl.glm.engine_job import random_job, value_of
from tests.support import new_seed, simulate


def _run(job, *, stall, seed, write_odds=1.0):
    """Serve weights two cycles after their chunk; write and free at random; the log and the kept words."""
    dut = Queued(Forward(lanes=job.lanes, banks=job.banks, depth=job.chunks, fifo_depth=8))
    rng = random.Random(seed)
    rows = job.weights.reshape(job.chunks, job.lanes).tolist()
    kept, written_cycles = [], []
    writes = (-(-job.micro_batches // job.mini_batch) * job.epochs - 1) * job.chunks

    async def memory(ctx):
        await ctx.tick().repeat(4)  # the shape settles
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        late, cycle, owed = 0, 5, 0
        while True:
            write = len(written_cycles) < writes and rng.random() < write_odds
            words_of_mini = job.mini_batch * job.chunks * job.planes
            if write and len(written_cycles) < job.chunks * (len(kept) // words_of_mini):
                ctx.set(dut.written, 1)
                written_cycles.append(cycle)
            else:
                ctx.set(dut.written, 0)
            free = owed > 0 and rng.random() < 0.7
            ctx.set(dut.freed, free)
            owed -= free
            _, _, chunk, keep, word = await ctx.tick().sample(dut.chunk, dut.keep, dut.word)
            if keep:
                kept.append(word)
                owed += 1
            ctx.set(dut.weights, rows[late])
            late = chunk
            cycle += 1

    micros = len(job.micro_scales())
    log = simulate(
        dut,
        drive={"samples": job.words()},
        collect={"pa": micros},
        stall=stall,
        settings=job.shape,
        processes=[memory],
        seed=seed,
    )
    return log, kept, written_cycles


def _job(seed, **size):
    job = random_job(random.Random(seed), **size)
    job.scales[:] = 0  # the model stays
    return job


def test_pas_and_kept_words_under_stalls():
    seed = new_seed()
    job = _job(seed, chunks=3, planes=3, mini_batch=2, micros=4, epochs=2)
    log, kept, _ = _run(job, stall=0.3, seed=seed, write_odds=0.2)
    assert [[value_of(x) for x in pa] for _, pa in log["pa"]] == job.expected()[0]
    assert kept == job.words()


def test_a_word_follows_the_write_of_its_chunk_by_one_cycle():
    job = _job(1, chunks=3, planes=2, mini_batch=1, micros=3, epochs=1)
    log, _, written = _run(job, stall=0, seed=1, write_odds=0.2)
    accepted = [cycle for cycle, _ in log["samples"]][:: job.planes]  # first planes
    for n, write in enumerate(written):
        before = accepted[n + job.chunks - 1] + job.planes  # the chunk before keeps forward busy
        assert accepted[n + job.chunks] == max(write + 1, before)


def test_a_pa_is_valid_as_late_as_it_says():
    job = _job(2, lanes=8, chunks=1, planes=2, mini_batch=9, micros=9, epochs=1)
    log, *_ = _run(job, stall=0, seed=2)
    lasts = [cycle for cycle, _ in log["samples"]][1::2]
    late = {pa - last - Queued.LATENCY for last, (pa, _) in zip(lasts, log["pa"], strict=True)}
    assert late == {forward_latency(8)} == {7}
