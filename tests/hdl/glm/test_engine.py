# amaranth: UnusedElaboratable=no
"""One engine against NumPy, bit for bit; its speed and its latencies, cycle by cycle."""

import random
from collections import Counter

import pytest
from amaranth.sim import Simulator

from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.shapes import ActivationSignature, ModelPortSignature
from tests.hdl.glm.activations import Queued
from tests.hdl.glm.engine_job import Job, random_job, run
from tests.support import new_seed, resolve, slow

CAUSES = ("model_wait", "fifo_full", "pa_full", "no_word")


def _check(job: Job, **arguments):
    result = run(job, **arguments)
    pas, model = job.expected()
    assert result.pas == pas
    assert result.model == model
    return result


@pytest.mark.parametrize("planes", [1, 8, *slow(*range(2, 8))])
def test_every_precision_is_bit_exact_under_stalls(planes):
    seed = new_seed()
    rng = random.Random(seed)
    job = random_job(rng, planes=planes, chunks=rng.randint(1, 4), mini_batch=2, micros=5, epochs=2)
    _check(job, seed=seed, stall=0.4, depth=job.chunks + rng.randint(0, 3))


@pytest.mark.parametrize(("lanes", "banks"), [(8, 2), (4, 8), *slow((2, 2), (2, 16), (16, 2))])
def test_every_size_is_bit_exact_under_stalls(lanes, banks):
    seed = new_seed()
    job = random_job(random.Random(seed), lanes=lanes, banks=banks, micros=3, epochs=1)
    _check(job, seed=seed)


@pytest.mark.parametrize(
    ("chunks", "planes"), [(1, 1), (2, 2), *slow((2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3))]
)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_a_weight_updated_in_every_cycle_is_never_stale(chunks, planes, stall):
    """Updates follow one another faster than memory shows them; some saturate on the way."""
    seed = new_seed()
    rng = random.Random(seed)
    job = random_job(rng, chunks=chunks, planes=planes, micros=20, mini_batch=15, epochs=1)
    job.features[:] |= 1 << planes - 1  # weights leave the range quickly, and come back
    _check(job, seed=seed, stall=stall, fifo_depth=60)


def test_a_weight_saturates_at_each_micro_batch_not_at_the_end():
    """Up twice beyond the top, then down: a sum that saturates only at the end would not move."""
    up, down = [-(2**31), -(2**31)], [2**31 - 1, 0]
    job = random_job(random.Random(1), lanes=2, banks=2, planes=2, chunks=1, mini_batch=3, micros=3, epochs=1)
    job.features[:] = 3
    job.scales[0] = [*up, *up, *down]
    job.weights[:] = [0, -(2**31)]
    result = _check(job, seed=1, stall=0)
    top = 2**31 - 1
    assert result.model[0] == top - (down[0] >> 1) - (down[0] >> 2)


@pytest.mark.parametrize("mini_batch", [3, *slow(1, 2, 7, 100)])
def test_the_last_mini_batch_of_an_epoch_may_be_short(mini_batch):
    seed = new_seed()
    job = random_job(random.Random(seed), mini_batch=mini_batch, micros=7, epochs=3)
    _check(job, seed=seed, stall=0.2)


@pytest.mark.parametrize("mini_batch", [3, *slow(1)])
@pytest.mark.parametrize(("chunks", "planes"), [(1, 1), (4, 3), *slow((1, 3), (3, 1))])
def test_the_next_mini_batch_follows_the_write_chunk_by_chunk(mini_batch, chunks, planes):
    job = random_job(random.Random(2), chunks=chunks, planes=planes, mini_batch=mini_batch, micros=6)
    result = _check(job, seed=2, stall=0, fifo_depth=60)
    words = chunks * planes
    per_mini_batch = words * mini_batch
    for n in range(1, len(result.word_cycles) // per_mini_batch):
        first = result.word_cycles[n * per_mini_batch]
        scale = result.scale_cycles[n * mini_batch - 1]
        assert first == scale + 5 + planes  # 2 banks: one adder level less than 8
    for n in range(len(result.word_cycles) // per_mini_batch):
        cycles = result.word_cycles[n * per_mini_batch : (n + 1) * per_mini_batch]
        assert cycles == list(range(cycles[0], cycles[0] + per_mini_batch))


@pytest.mark.parametrize(("chunks", "planes"), [(1, 2), *slow((1, 1), (2, 4))])
def test_one_word_a_cycle_forward_and_backward_at_once(chunks, planes):
    job = random_job(random.Random(3), chunks=chunks, planes=planes, mini_batch=60, micros=60, epochs=1)
    result = _check(job, seed=3, stall=0, fifo_depth=60)
    words = chunks * planes
    start = result.word_cycles[0]
    assert result.word_cycles == list(range(start, start + 60 * words))
    assert {b - a for a, b in zip(result.pa_cycles, result.pa_cycles[1:], strict=False)} == {words}
    assert {b - a for a, b in zip(result.scale_cycles, result.scale_cycles[1:], strict=False)} == {words}


@pytest.mark.parametrize(("lanes", "latency"), [(2, 6), (8, 7), *slow((64, 9))])
def test_a_pa_leaves_as_late_as_the_engine_says(lanes, latency):
    job = random_job(random.Random(4), lanes=lanes, chunks=1, planes=2, micros=3, mini_batch=3, epochs=1)
    result = _check(job, seed=4, stall=0)
    words = job.chunks * job.planes
    lasts = result.word_cycles[words - 1 :: words]
    assert [pa - last for last, pa in zip(lasts, result.pa_cycles, strict=True)] == [latency] * 3
    assert _latencies(lanes=lanes, banks=2) == (latency, 5)


def _latencies(**size):
    engine = Engine(**size, depth=1, fifo_depth=1)
    return engine.pa_latency, engine.write_latency


def test_the_full_size_has_the_latencies_of_its_docstring():
    assert _latencies(lanes=64, banks=8) == (9, 6)


def test_the_replay_fifo_takes_what_it_holds_and_no_more():
    job = random_job(random.Random(5), chunks=2, planes=3, mini_batch=9, micros=9, epochs=1)
    result = _check(job, seed=5, stall=0, fifo_depth=13, scale_delay=60)
    before = [cycle for cycle in result.word_cycles if cycle <= result.scale_cycles[0]]
    assert len(before) == 13
    assert result.word_cycles[13] == result.scale_cycles[0] + 3  # read, counted, looked up
    assert any(events.fifo_full for events in result.events)


def test_a_fifo_of_just_one_micro_batch_is_enough():
    seed = new_seed()
    _check(random_job(random.Random(seed), chunks=2, planes=3), seed=seed, fifo_depth=6)


def test_pas_that_nobody_takes_hold_forward_up_but_are_not_lost():
    micros = ActivationSignature.QUEUE + 10
    job = random_job(random.Random(6), chunks=1, planes=1, mini_batch=micros, micros=micros, epochs=1)
    result = _check(job, seed=6, stall={"pa": 0.9}, fifo_depth=100)
    for n in range(ActivationSignature.QUEUE, micros):
        assert result.word_cycles[n] > result.pa_cycles[n - ActivationSignature.QUEUE]
    assert any(events.pa_full for events in result.events)


def test_events_account_for_every_micro_batch_and_every_cycle():
    seed = new_seed()
    job = random_job(random.Random(seed), chunks=2, planes=2, mini_batch=2, micros=6, epochs=2)
    result = _check(job, seed=seed, stall=0.3, fifo_depth=8)
    started = len(job.weights) + 2  # ``start``, then its credits are looked up
    accepted = set(result.word_cycles)
    counts = Counter()
    for cycle, events in enumerate(result.events[1:]):  # one cycle late
        causes = [cause for cause in CAUSES if events[cause]]
        assert len(causes) == (cycle >= started and cycle not in accepted)
        counts.update(causes)
        counts.update({name: events[name] for name in ("forward_first", "forward_last", "backward_last")})
        if events.backward_first:
            counts["backward_first"] += 1
            assert cycle in result.scale_cycles
        if cycle >= started:
            counts["backward"] += not events.backward_idle
    ends = ("forward_first", "forward_last", "backward_first", "backward_last")
    assert [counts[name] for name in ends] == [12] * 4
    assert counts["backward"] == len(result.word_cycles)
    assert counts["model_wait"] > 0
    assert counts["no_word"] > 0


class _Manual:
    """An engine driven by hand."""

    def __init__(self, job, *, depth=4, fifo_depth=32):
        self.job, self.lanes = job, job.lanes
        self.depth = depth
        self.dut = Queued(Engine(lanes=job.lanes, banks=job.banks, depth=depth, fifo_depth=fifo_depth))

    def go(self, body):
        """Run ``body`` to its end; no monitor, for ``start`` may withdraw a PA."""

        async def process(ctx):
            for name, value in self.job.shape.items():
                ctx.set(resolve(self.dut, name), value)
            await body(ctx)

        async def watchdog(ctx):
            for _ in range(5_000):
                await ctx.tick()
            raise AssertionError("still running")

        sim = Simulator(self.dut)
        sim.add_clock(4e-9)
        sim.add_testbench(process)
        sim.add_testbench(watchdog, background=True)
        sim.run()

    async def pulse(self, ctx, name):
        port = getattr(self.dut, name)
        ctx.set(port, 1)
        await ctx.tick()
        ctx.set(port, 0)

    async def put(self, ctx, port, payload):
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def get(self, ctx, port):
        ctx.set(port.ready, 1)
        (payload,) = await ctx.tick().sample(port.payload).until(port.valid)
        ctx.set(port.ready, 0)
        return [split.high * 2**24 + split.low for split in payload]

    async def epoch(self, ctx):
        """One epoch; its PAs."""
        pas = []
        words = self.job.words()
        per_micro = self.job.chunks * self.job.planes
        for n, scale in enumerate(self.job.micro_scales()):
            for word in words[n * per_micro : (n + 1) * per_micro]:
                await self.put(ctx, self.dut.samples, word)
            pas.append(await self.get(ctx, self.dut.pa))
            await self.put(ctx, self.dut.scale, scale)
        await ctx.tick().until(~self.dut.busy)
        return pas

    async def write(self, ctx, weights):
        for index, weight in enumerate(weights):
            ctx.set(self.dut.host.chunk, index // self.lanes)
            ctx.set(self.dut.host.lane, index % self.lanes)
            ctx.set(self.dut.host.write_data, int(weight))
            ctx.set(self.dut.host.write, 1)
            await ctx.tick()
            ctx.set(self.dut.host.write, 0)

    async def read(self, ctx, count):
        """Pipelined: one request a cycle."""
        values = []
        for cycle in range(count + ModelPortSignature.READ_LATENCY):
            if cycle >= ModelPortSignature.READ_LATENCY:
                values.append(ctx.get(self.dut.host.read_data))
            ctx.set(self.dut.host.read, cycle < count)
            ctx.set(self.dut.host.chunk, min(cycle, count - 1) // self.lanes)
            ctx.set(self.dut.host.lane, min(cycle, count - 1) % self.lanes)
            await ctx.tick()
        ctx.set(self.dut.host.read, 0)
        return values


def test_start_keeps_the_model_and_clear_zeroes_both_memories():
    job = random_job(random.Random(7), micros=3, mini_batch=2, epochs=1, large=False)
    manual = _Manual(job)

    async def body(ctx):
        await manual.write(ctx, job.weights)
        for _ in range(2):
            pas, model = job.expected()
            await manual.pulse(ctx, "start")
            assert await manual.epoch(ctx) == pas
            assert await manual.read(ctx, len(model)) == model
            job.weights[:] = model
        await manual.pulse(ctx, "clear")
        cycles = 1
        while ctx.get(manual.dut.busy):
            await ctx.tick()
            cycles += 1
        assert cycles == manual.depth + 2
        assert await manual.read(ctx, 4 * job.lanes) == [0] * 4 * job.lanes
        job.weights[:] = 0
        pas, model = job.expected()
        await manual.pulse(ctx, "start")
        assert await manual.epoch(ctx) == pas
        assert await manual.read(ctx, len(model)) == model  # the accumulating memory was cleared, too

    manual.go(body)


@pytest.mark.parametrize(
    "words", [3, 7, *slow(1, 6, 12)]
)  # two micro-batches; a third would wait for the model
def test_start_drops_what_an_aborted_run_has_left(words):
    job = random_job(random.Random(8), chunks=2, planes=3, micros=4, mini_batch=2, epochs=1)
    manual = _Manual(job, fifo_depth=32)

    async def body(ctx):
        await manual.write(ctx, job.weights)
        await manual.pulse(ctx, "start")
        for n in range(words):
            await manual.put(ctx, manual.dut.samples, (1 << job.lanes * job.banks) - 1 - n)
        await ctx.tick().repeat(16)
        await manual.pulse(ctx, "start")
        pas, model = job.expected()
        assert await manual.epoch(ctx) == pas
        assert await manual.read(ctx, len(model)) == model

    manual.go(body)


def test_nothing_is_accepted_before_start():
    job = random_job(random.Random(9))
    manual = _Manual(job)

    async def body(ctx):
        ctx.set(manual.dut.samples.valid, 1)
        for _ in range(10):
            _, _, ready, events = await ctx.tick().sample(manual.dut.samples.ready, manual.dut.events)
            assert not ready
            assert not any(events[name] for name in (*CAUSES, "backward_idle", "forward_first"))

    manual.go(body)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two from 2 to 64, not 3"),
        ({"lanes": 128}, "lanes must be a power of two from 2 to 64, not 128"),
        ({"banks": 3}, "banks must be even and at least 2, not 3"),
        ({"depth": 4097}, "depth must be from 1 to 4096 chunks, not 4097"),
        ({"fifo_depth": 0}, "fifo_depth must be at least 1 word, not 0"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Engine(**arguments)
