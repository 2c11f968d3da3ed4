"""Gradients become commands, and what is counted of them."""

import random

import pytest

from fanin.hdl.param_server.staleness import Staleness
from fanin.hdl.param_server.update_control import UpdateControl
from fanin.rdma.facts import RdmaConfig
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = RdmaConfig(address_width=32, queue_pairs=4, regions=2)
SETTINGS = {
    "workers": 2, "slots": 3, "rows": 2, "barrier": 0, "broadcast": 0, "scan": 0, "words": 5,
    "gradient_bytes": 320, "row_bytes": 448, "slot_bytes": 384, "base": 0x1000, "step": 0,
}  # fmt: skip
COMMANDS = ["w", "gradient", "write", "order", "push"]


def test_an_update_is_ordered_2_cycles_after_its_gradient_and_the_next_one_7_cycles_later():
    dut = UpdateControl(config=CONFIG)
    bench = Bench(dut, COMMANDS, seed=1)
    places = []

    taken, ordered = [], []

    async def watch(ctx):
        watched = (dut.place.valid, dut.place.payload, dut.found.valid & dut.found.ready, dut.order.valid)
        cycle = 0
        async for _, _, placed, place, takes, orders in ctx.tick().sample(*watched):
            if placed:
                places.append((place.index, place.trailer, place.lgvnum))
            if takes:
                taken.append(cycle)
            if orders:
                ordered.append(cycle)
            cycle += 1

    async def main(ctx):
        ctx.set(dut.settings, SETTINGS)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        await bench.put(ctx, dut.worker, {"index": 1, "table": 0x8000, "remote": 0x100, "rkey": 7})
        ctx.set(dut.enable, 1)
        await ctx.tick().repeat(8)
        for version in range(1, 5):
            await bench.put(ctx, dut.found, {"index": 1, "version": version, "others": 0})
        await ctx.tick().repeat(8)
        assert taken == [taken[0] + 7 * n for n in range(4)]
        slots = [0x8000, 0x8180, 0x8300]
        assert ordered == [cycle + 2 for cycle in taken]
        assert all([c for c, _ in bench.log[n]] == [c for c, _ in bench.log["order"]] for n in COMMANDS)
        # w of one row, the next one written: two rows, and three slots, in a ring
        assert [p.address for _, p in bench.log["w"]] == [0x1040, 0x1200, 0x1040, 0x1200]
        assert [p.address for _, p in bench.log["write"]] == [0x11C0, 0x1000, 0x11C0, 0x1000]
        assert [p.address for _, p in bench.log["gradient"]] == [slots[n % 3] for n in range(1, 5)]
        assert [p.version for _, p in bench.log["order"]] == [1, 2, 3, 4]
        assert places == [(1, slots[(n + 1) % 3] + 320, n) for n in range(5)]
        assert ctx.get(dut.version) == 4

    bench.run(main, watch)


def test_no_gradient_is_taken_while_the_next_row_is_occupied():
    dut = UpdateControl(config=CONFIG)
    bench = Bench(dut, COMMANDS, seed=1)

    async def main(ctx):
        ctx.set(dut.settings, SETTINGS)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.enable, 1)
        ctx.set(dut.occupied, 0b10)
        await ctx.tick().repeat(4)
        ctx.set(dut.found.payload, {"index": 0, "version": 1, "others": 0})
        ctx.set(dut.found.valid, 1)
        await ctx.tick().repeat(10)
        assert bench.log["order"] == []
        ctx.set(dut.occupied, 0b01)
        await ctx.tick().repeat(5)
        assert len(bench.log["order"]) == 1

    bench.run(main)


@pytest.mark.parametrize(
    ("mode", "ends"), [({}, [1, 1, 1, 1]), ({"broadcast": 1}, [1, 1, 1, 1]), ({"barrier": 1}, [0, 1, 0, 1]),
                       ({"scan": 1}, [0, 0, 0, 0])], ids=str,
)  # fmt: skip
def test_a_round_ends_with_each_gradient_or_with_that_of_the_last_worker_or_none(mode, ends):
    bench = Bench(UpdateControl(config=CONFIG), COMMANDS, seed=1)

    async def main(ctx):
        await begin(ctx, bench, mode)
        for version in 1, 2:
            for worker in 0, 1:
                await bench.put(ctx, bench.dut.found, {"index": worker, "version": version, "others": 0})
        await ctx.tick().repeat(8)

    bench.run(main)
    assert [(push.is_new, push.ends_round) for _, push in bench.log["push"]] == [(1, end) for end in ends]


@pytest.mark.parametrize("enable", [1, 0])
def test_a_scans_end_pushes_the_newest_row_and_orders_nothing_else(enable):
    bench = Bench(dut := UpdateControl(config=CONFIG), COMMANDS, seed=1)

    async def main(ctx):
        await begin(ctx, bench, {"scan": 1})
        for worker in 0, 1:
            await bench.put(ctx, dut.found, {"index": worker, "version": 1, "others": 0})
        ctx.set(dut.enable, enable)  # what was begun is ended
        ctx.set(dut.occupied, 0b11)  # and an end needs no row
        await bench.put(ctx, dut.found, {"ends_scan": 1})
        taken = bench.cycle
        await ctx.tick().repeat(8)
        assert ctx.get(dut.idle)
        assert ctx.get(dut.version) == 2
        last, end = bench.log["push"][-2:]
        assert end[0] - taken == 2
        assert (end[1].row, end[1].local) == (last[1].row, last[1].local)
        assert (end[1].is_new, end[1].ends_round) == (0, 1)
        assert [len(bench.log[name]) for name in COMMANDS] == [2, 2, 2, 2, 3]

    bench.run(main)


def test_a_worker_that_is_taken_back_goes_to_the_pushes_alone_and_keeps_its_slot():
    bench = Bench(dut := UpdateControl(config=CONFIG), COMMANDS, seed=1)

    async def main(ctx):
        await begin(ctx, bench, {})
        await bench.put(ctx, dut.found, {"index": 1, "version": 1, "others": 0})
        await ctx.tick().repeat(8)
        back = {"index": 1, "table": 0, "remote": 0x900, "rkey": 9, "readmits": 1}
        ctx.set(dut.found.payload, {"ends_scan": 1})  # offered beside it, and taken after it
        ctx.set(dut.found.valid, 1)
        await bench.put(ctx, dut.worker, back)
        await bench.put(ctx, dut.found, {"ends_scan": 1})
        await ctx.tick().repeat(8)
        assert (ctx.get(dut.version), ctx.get(dut.joined)) == (1, 0)
        await bench.put(ctx, dut.found, {"index": 1, "version": 2, "others": 0})
        await bench.put(ctx, dut.found, {"index": 0, "version": 1, "others": 0})
        await bench.put(ctx, dut.worker, back)
        await ctx.tick().repeat(8)
        assert ctx.get(dut.joined) == 0

    bench.run(main)
    pushes = [push for _, push in bench.log["push"]]
    flags = [(push.index, push.readmits, push.is_new, push.ends_round) for push in pushes]
    assert flags == [(1, 0, 1, 1), (1, 1, 0, 0), (0, 0, 0, 1), (1, 0, 1, 1), (0, 0, 1, 1), (1, 1, 0, 0)]
    assert [(push.remote, push.rkey) for push in pushes if push.is_new or push.readmits] == [
        (0x100, 7),
        *[(0x900, 9)] * 2,
        (0x100, 7),
        (0x900, 9),
    ]
    table = 0x10000
    assert [p.address for _, p in bench.log["gradient"]] == [table + 0x180, table + 0x300, 0x8180]


@pytest.mark.parametrize(
    ("mode", "joined"), [({}, [0, 0]), ({"broadcast": 1}, [0, 0]), ({"barrier": 1}, [0b10, 0]),
                         ({"scan": 1}, [0b10, 0b11])], ids=str,
)  # fmt: skip
def test_a_worker_has_joined_until_its_round_ends(mode, joined):
    bench = Bench(dut := UpdateControl(config=CONFIG), COMMANDS, seed=1)

    async def main(ctx):
        await begin(ctx, bench, mode)
        for worker, expected in zip((1, 0), joined, strict=True):
            await bench.put(ctx, dut.found, {"index": worker, "version": 1, "others": 0})
            await ctx.tick().until(dut.place.valid)
            assert ctx.get(dut.joined) == expected
        if "scan" in mode:
            await bench.put(ctx, dut.found, {"ends_scan": 1})
            await ctx.tick().repeat(8)
            assert ctx.get(dut.joined) == 0

    bench.run(main)


async def begin(ctx, bench, mode):
    """Set up, with gradients of two workers to come."""
    dut = bench.dut
    ctx.set(dut.settings, SETTINGS | mode)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    for worker in 0, 1:
        place = {"index": worker, "table": 0x8000 * (worker + 1), "remote": 0x100, "rkey": 7}
        await bench.put(ctx, dut.worker, place)
    ctx.set(dut.enable, 1)
    await ctx.tick().repeat(8)


def test_staleness_is_summed_over_64_bits():
    dut = Staleness()
    rng = random.Random(new_seed())

    async def main(ctx):
        ages = [rng.choice([rng.getrandbits(32), 0, (1 << 32) - 1, 3]) for _ in range(50)]
        for count, age in enumerate(ages):
            ctx.set(dut.age, age)
            ctx.set(dut.add, 1)
            await ctx.tick()
            ctx.set(dut.add, 0)
            await ctx.tick()
            assert ctx.get(dut.total) == sum(ages[: count + 1])
            assert ctx.get(dut.largest) == max(ages[: count + 1])
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert (ctx.get(dut.total), ctx.get(dut.largest)) == (0, 0)

    Bench(dut, [], seed=0).run(main)
