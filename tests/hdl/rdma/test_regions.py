"""Who may write where, beside the golden model's regions."""

import random

from amaranth.sim import Simulator

from fanin.hdl.rdma.regions import LATENCY, RegionTable
from fanin.rdma.facts import RdmaConfig, Region
from tests.support import new_seed

CONFIG = RdmaConfig(address_width=24)
LIMIT = 1 << CONFIG.address_width


def random_region(rng, key):
    length = rng.choice([1, 64, rng.randrange(1, 1 << 12), LIMIT // 2])
    base = rng.choice([0, LIMIT - length, rng.randrange(LIMIT - length + 1)])
    return Region(base, length, key, frozenset(rng.sample(range(CONFIG.queue_pairs), rng.randrange(5))))


def random_question(rng, regions):
    region = rng.choice(regions)
    index = rng.choice([*region.queue_pairs, rng.randrange(CONFIG.queue_pairs)])
    length = rng.choice([1, region.length, region.length + 1, rng.randrange(1, 1 << 31)])
    starts = [region.base, region.base - 1, region.base + 1, region.base + region.length - length]
    address = rng.choice([*starts, rng.randrange(LIMIT)]) + (rng.getrandbits(64) & -LIMIT) * (
        rng.random() < 0.1
    )
    rkey = rng.choice([region.rkey] * 5 + [rng.getrandbits(32), region.rkey ^ 1 << rng.randrange(32)])
    return index, address % (1 << 64), rkey, length


def test_a_write_is_allowed_where_the_model_allows_it_a_question_a_cycle():
    seed = new_seed()
    rng = random.Random(seed)
    dut = RegionTable(config=CONFIG)
    answers = set()

    async def bench(ctx):
        regions = {}
        for _ in range(8):
            for index in rng.sample(range(CONFIG.regions), 8):
                region = random_region(rng, rng.getrandbits(32))
                regions[index] = region
                enable = rng.random() < 0.9
                if not enable:
                    del regions[index]
                mask = sum(1 << n for n in region.queue_pairs)
                limit = region.base + region.length
                ctx.set(dut.region.valid, 1)
                fields = {"rkey": region.rkey, "base": region.base, "limit": limit, "queue_pairs": mask}
                ctx.set(dut.region.payload, {"index": index, "enable": enable, **fields})
                await ctx.tick()
            ctx.set(dut.region.valid, 0)
            known, due = list(regions.values()), []
            for _ in range(200):
                index, address, rkey, length = random_question(rng, known)
                ctx.set(dut.ask, {"index": index, "address": address, "rkey": rkey, "length": length})
                due.append(
                    any(
                        region.rkey == rkey and index in region.queue_pairs and region.contains(address, length)
                        for region in known
                    )
                )
                await ctx.tick()
                if len(due) == LATENCY:
                    assert ctx.get(dut.allowed) == due[0], (seed, index, hex(address), length)
                    answers.add(due.pop(0))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert answers == {True, False}
