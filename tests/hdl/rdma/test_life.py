# amaranth: UnusedElaboratable=no
"""The life of the node: whatever it has been through, the next job gives the golden bits."""

import random

import pytest
from amaranth import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from tests.hdl.rdma import node_life
from tests.hdl.rdma.life import Life, Sender, clean_job, random_step
from tests.support import new_seed, slow


@pytest.mark.parametrize(("jobs", "steps"), [(1, 10), *slow(*[(20, 25)] * 20)])
def test_a_sender_does_clean_jobs_after_anything(jobs, steps):
    seed = new_seed()
    rng = random.Random(seed)
    dut, reset, top = Sender(), Signal(), Module()
    top.submodules.dut = ResetInserter(reset)(dut)
    life = Life(dut, rng, reset)

    async def main(ctx):
        ctx.set(dut.timeout, 300)
        for _ in range(jobs):
            for _ in range(steps):
                await random_step(ctx, life)
            await clean_job(ctx, life)

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(main)
    simulator.run()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [6])
def test_a_node_does_clean_jobs_after_anything(jobs):
    life = node_life.NodeLife(new_seed())

    async def main(ctx):
        await life.start(ctx)
        for _ in range(jobs):
            for _ in range(15):
                await node_life.random_step(ctx, life)
            await life.clean_job(ctx)

    life.simulate(main)
