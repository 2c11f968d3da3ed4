# amaranth: UnusedElaboratable=no
"""L2 regularisation in the engine: what weights lose, when, and that it costs no cycle."""

import random

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.fixed import INT32_MAX, INT32_MIN, MAX_DECAY, Decay, decay
from fanin.hdl.glm.decay import DECAY_SHIFT, EngineDecay, decay_loss, lane_decays
from fanin.hdl.glm.shapes import WEIGHT
from tests.hdl.glm.engine_job import random_job, run
from tests.support import new_seed, simulate, slow

SPECIAL = [INT32_MIN, INT32_MIN + 1, -(2**24), -3, -2, -1, 0, 1, 2, 3, 2**24, INT32_MAX - 1, INT32_MAX]


class _OneLane(wiring.Component):
    """A weight in; what it loses, in one number, 2 cycles after the shift and 1 after the weight."""

    def __init__(self):
        super().__init__({"weight": In(WEIGHT), "shift": In(DECAY_SHIFT), "lost": Out(WEIGHT)})

    def elaborate(self, platform):
        m = Module()
        engine = Signal(EngineDecay)
        m.d.comb += engine.shift.eq(self.shift)
        (lane,) = lane_decays(m, engine, 1, chunk=Signal(), valid=1)
        register = decay_loss(m, self.weight, lane)
        m.d.comb += self.lost.eq(register.quotient + register.round_up)
        return m


def test_a_weight_loses_what_the_golden_model_says():
    rng = random.Random(new_seed())
    dut, seen = _OneLane(), []

    async def process(ctx):
        for shift in range(MAX_DECAY + 1):
            ctx.set(dut.shift, shift)
            await ctx.tick()
            edges = [sign * (2**shift + d) for sign in (1, -1) for d in (-1, 0, 1)]
            for weight in [*SPECIAL, *edges, *(rng.getrandbits(32) - 2**31 for _ in range(10))]:
                ctx.set(dut.weight, weight)
                await ctx.tick()
                seen.append((shift, weight, ctx.get(dut.lost)))

    simulate(dut, processes=[process], idle=2000)
    assert len(seen) == (MAX_DECAY + 1) * (len(SPECIAL) + 16)
    assert seen == [(shift, weight, int(decay(weight, shift))) for shift, weight, _ in seen]


def _job(rng, *, shift, spared=None, **sizes):
    job = random_job(rng, **sizes)
    job.decay = Decay(shift, spared)
    return job


def _check(job, **arguments):
    result = run(job, **arguments)
    pas, model = job.expected()
    assert result.pas == pas
    assert result.model == model
    return result


@pytest.mark.parametrize(
    ("chunks", "planes"), [(1, 1), (3, 4), *slow((2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3), (2, 8))]
)
@pytest.mark.parametrize("mini_batch", [4, *slow(1)])
def test_an_engine_decays_its_weights_bit_for_bit_under_stalls(chunks, planes, mini_batch):
    seed = new_seed()
    rng = random.Random(seed)
    job = _job(
        rng,
        shift=rng.randint(1, MAX_DECAY),
        spared=rng.randrange(4 * chunks),
        chunks=chunks,
        planes=planes,
        mini_batch=mini_batch,
        micros=9,
    )
    _check(job, seed=seed, stall=rng.choice([0, 0.4]), fifo_depth=4 * chunks * planes)


@pytest.mark.parametrize("shift", [1, 8, *slow(2, 16, MAX_DECAY)])
def test_special_weights_with_gradients_that_saturate_and_without(shift):
    job = _job(random.Random(1), shift=shift, lanes=16, chunks=1, planes=8, micros=6, mini_batch=2, epochs=1)
    job.weights = np.resize(SPECIAL, 16)
    job.features[:] = 255 * (np.arange(16) % 2)  # every other one has no gradient
    job.scales[0] = np.repeat([0, INT32_MIN, INT32_MAX], 4)
    _check(job, seed=1, stall=0)


def test_weights_without_a_gradient_end_in_zero_and_stay_there():
    job = _job(random.Random(1), shift=3, spared=2, chunks=1, planes=1, micros=60, mini_batch=1, epochs=1)
    job.scales[:] = 0
    job.weights = np.array([1000, -1000, 7, 1])
    assert _check(job, seed=1, stall=0).model == [0, 0, 7, 0]


def test_shift_0_takes_nothing():
    job = _job(random.Random(2), shift=0)
    pas, model = job.expected()
    job.decay = None
    assert (pas, model) == job.expected()
    job.decay = Decay(0)
    _check(job, seed=2)


@pytest.mark.parametrize(("chunks", "planes", "mini_batch"), [(1, 1, 3), (4, 3, 1)])
def test_decay_costs_no_cycle(chunks, planes, mini_batch):
    """The next mini-batch follows as soon as without it; micro-batches follow one another without a bubble."""
    sizes = {"chunks": chunks, "planes": planes, "mini_batch": mini_batch, "micros": 6}
    with_decay = _job(random.Random(3), shift=5, **sizes)
    without = random_job(random.Random(3), **sizes)
    one, other = (_check(job, seed=3, stall=0, fifo_depth=60) for job in (with_decay, without))
    assert one.word_cycles == other.word_cycles
    assert one.scale_cycles == other.scale_cycles
