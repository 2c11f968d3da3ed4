"""Parameters: loaded, used by the layer, updated and dumped, beside arrays in Python."""

import random

import numpy as np
import pytest

from fanin.golden.fp32 import add, multiply
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.parameter_walk import update_latency
from fanin.hdl.layers.parameters import Parameters
from tests.fp32_values import SPECIAL
from tests.support import new_seed, simulate

SIZES = [(1, 1), (1, 9), (4, 3), (9, 2), (20, 1)]  # lanes, depth; of more than 8 lanes two cycles choose


class Bench:
    """A component with its expected contents, and a driver of it."""

    def __init__(self, lanes, depth, seed):
        self.dut = Parameters(lanes=lanes, depth=depth)
        self.shape = depth, lanes
        self.rng = random.Random(seed)
        self.weights, self.velocities = self.draw(), self.draw()

    def draw(self):
        words = [self.rng.choice(SPECIAL) for _ in range(self.shape[0] * self.shape[1])]
        return np.array(words).reshape(self.shape)

    @property
    def image(self):
        """In the order of load and dump."""
        return [int(word) for words in (self.weights, self.velocities) for word in words.flat]

    def update(self, eta, momentum):
        """What an update makes of the contents."""
        eta, momentum, w, v = (
            np.asarray(bits, np.uint32).view(np.float32)
            for bits in (eta, momentum, self.weights, self.velocities)
        )
        self.weights = add(w, multiply(eta, v)).view(np.uint32)
        self.velocities = multiply(momentum, v).view(np.uint32)

    async def job(self, ctx, mode):
        """Start it, and wait until it is done."""
        ctx.set(self.dut.control.mode, mode)
        ctx.set(self.dut.control.start, 1)
        await ctx.tick()
        ctx.set(self.dut.control.start, 0)
        assert not ctx.get(self.dut.done)
        await ctx.tick().until(self.dut.done)

    async def order_update(self, ctx, eta, momentum):
        """Cycles that the update takes."""
        ctx.set(self.dut.control.momentum, momentum)
        ctx.set(self.dut.eta, eta)
        ctx.set(self.dut.update, 1)
        cycles = 0
        while not ctx.get(self.dut.updated):
            assert ctx.get(self.dut.done)
            await ctx.tick()
            ctx.set(self.dut.update, 0)
            cycles += 1
        await ctx.tick()
        return cycles

    async def check_reads(self, ctx):
        """All words, of the three ports at once."""
        depth = self.shape[0]
        for _ in range(2 * depth + 2):
            addresses = [self.rng.randrange(depth) for _ in range(3)]
            for port, address in zip(("forward", "backward", "velocity"), addresses, strict=True):
                ctx.set(getattr(self.dut, f"{port}_address"), address)
            await ctx.tick()
            for port, words, address in zip(
                ("forward_weights", "backward_weights", "velocities"),
                (self.weights, self.weights, self.velocities),
                addresses,
                strict=True,
            ):
                assert list(ctx.get(getattr(self.dut, port))) == words[address].tolist()

    async def write_and_read(self, ctx):
        """A velocity that is written is read in the same cycle."""
        address = self.rng.randrange(self.shape[0])
        self.velocities[address] = self.draw()[0]
        ctx.set(self.dut.new_velocities, self.velocities[address].tolist())
        ctx.set(self.dut.write_address, address)
        ctx.set(self.dut.velocity_address, address)
        ctx.set(self.dut.write, 1)
        await ctx.tick()
        ctx.set(self.dut.write, 0)
        assert list(ctx.get(self.dut.velocities)) == self.velocities[address].tolist()


@pytest.mark.parametrize("stall", [0.3, 0.0])
@pytest.mark.parametrize(("lanes", "depth"), SIZES)
def test_load_use_update_dump(lanes, depth, stall):
    seed = new_seed()
    bench = Bench(lanes, depth, seed)
    loads, dumps, jobs = [], [], []
    for _ in range(2):  # job after job; the next load's words wait already
        loads += bench.image
        writes, eta, momentum = bench.rng.randrange(4), bench.rng.choice(SPECIAL), bench.rng.choice(SPECIAL)
        jobs.append((bench.weights, bench.velocities, writes, eta, momentum))
        bench.weights, bench.velocities = bench.draw(), bench.draw()

    async def process(ctx):
        for weights, velocities, writes, eta, momentum in jobs:
            bench.weights, bench.velocities = weights.copy(), velocities.copy()
            await bench.job(ctx, Mode.LOAD)
            await bench.check_reads(ctx)
            for _ in range(writes):
                await bench.write_and_read(ctx)
            for _ in range(2):  # updates in a row
                cycles = await bench.order_update(ctx, eta, momentum)
                assert cycles == lanes * depth + update_latency(lanes)
                bench.update(eta, momentum)
            await bench.check_reads(ctx)
            dumps.extend(bench.image)
            await bench.job(ctx, Mode.DUMP)

    log = simulate(
        bench.dut,
        drive={"load": loads},
        collect={"dump": len(loads)},
        processes=[process],
        stall=stall,
        seed=seed,
    )
    assert [word for _, word in log["dump"]] == dumps
    if not stall:  # a word a cycle
        for name in "load", "dump":
            cycles = [cycle for cycle, _ in log[name]][: 2 * lanes * depth]
            assert cycles[-1] - cycles[0] == 2 * lanes * depth - 1
