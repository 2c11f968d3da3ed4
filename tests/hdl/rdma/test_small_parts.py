"""The arbiter, the timers, and which posts are refused."""

import random

import pytest

from fanin.hdl.rdma.timers import Timers
from fanin.hdl.rdma.write_queue import WriteQueue
from fanin.hdl.stream.round_robin import RoundRobin
from fanin.rdma.facts import RdmaConfig, Refusal
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = RdmaConfig(address_width=32, queue_pairs=4, regions=2)


@pytest.mark.parametrize("count", [2, 4])
def test_the_next_requester_after_the_last_one_is_served(count):
    dut = RoundRobin(count=count)

    async def main(ctx):
        for requests in range(1 << count):
            for last in range(count):
                ctx.set(dut.requests, requests)
                ctx.set(dut.last, last)
                await ctx.tick().repeat(3)
                order = [(last + 1 + n) % count for n in range(count)]
                expected = next((n for n in order if requests >> n & 1), None)
                assert ctx.get(dut.valid) == (expected is not None)
                if expected is not None:
                    assert ctx.get(dut.index) == expected

    Bench(dut, [], seed=0).run(main)


@pytest.mark.parametrize("timeout", [16, 100])
def test_a_timer_expires_within_the_stated_time_and_not_once_it_is_restarted(timeout):
    count = 4
    dut = Timers(count=count)
    rng = random.Random(new_seed())

    async def main(ctx):
        ctx.set(dut.timeout, timeout)
        await ctx.tick()  # until then it is still 0
        began = [None] * count
        expired = 0
        for cycle in range(6000):
            seen = ctx.get(dut.expired)
            restart, waiting = 0, ctx.get(dut.waiting)
            for n in range(count):
                if not waiting >> n & 1:
                    if rng.random() < 0.1:
                        waiting, began[n] = waiting | 1 << n, cycle
                    continue
                age = cycle - began[n]
                if seen >> n & 1:
                    assert timeout <= age
                    expired += 1
                assert seen >> n & 1 or age <= timeout + 2 * count + 3
                if seen >> n & 1 or rng.random() < 0.5 / timeout:
                    restart, began[n] = restart | 1 << n, cycle + 1
                elif rng.random() < 0.2 / timeout:
                    waiting &= ~(1 << n)
            ctx.set(dut.restart, restart)
            ctx.set(dut.waiting, waiting)
            await ctx.tick()
        assert expired > 20

    Bench(dut, [], seed=0).run(main)


@pytest.mark.parametrize("timeout", [100, 247, 255])
def test_so_does_one_of_the_longest_timeouts(timeout, monkeypatch):
    """Of 8 bits here, in steps of 4 cycles: an age of as many bits is never above the greatest limit."""
    monkeypatch.setattr("fanin.hdl.rdma.timers.TIMEOUT_BITS", 8)
    count = 4
    dut = Timers(count=count)

    async def main(ctx):
        ctx.set(dut.timeout, timeout)
        await ctx.tick()
        ctx.set(dut.waiting, 1)
        await ctx.tick().repeat(timeout)
        assert not ctx.get(dut.expired)
        await ctx.tick().repeat(2 * count + 3)
        for _ in range(600):  # until the age has come round
            assert ctx.get(dut.expired) == 1
            await ctx.tick()

    Bench(dut, [], seed=0).run(main)


def test_posts_that_cannot_be_done_or_told_of_are_refused():
    dut = WriteQueue(config=CONFIG, completions=20)
    end = 1 << CONFIG.address_width
    said, causes = [], []

    async def post(ctx, local, length):
        fields = {"index": 1, "tag": len(said), "local": local % end, "length": length}
        ctx.set(dut.write, fields | dict.fromkeys(("remote", "rkey", "with_immediate", "immediate"), 0))
        ctx.set(dut.local, local)
        ctx.set(dut.post, 1)
        await ctx.tick()
        ctx.set(dut.post, 0)
        for cycle in range(1, 6):
            assert not (ctx.get(dut.accepted) or ctx.get(dut.refused)) or cycle == 3
            if cycle == 3:
                assert ctx.get(dut.accepted) != ctx.get(dut.refused)
                said.append(ctx.get(dut.accepted))
            await ctx.tick()

    async def main(ctx):
        good = [(0, 0), (0, 1 << 31), (end - 1, 1), (end - 100, 100)]
        bad = [(0, (1 << 31) + 1), (end - 1, 2), (end, 0), (1 << 63, 1), (end - 1, 1 << 31)]
        for local, length in good + bad:
            await post(ctx, local, length)
            causes.append(ctx.get(dut.refusal))
        assert said == [1] * len(good) + [0] * len(bad)
        assert causes == [Refusal.NONE] * len(good) + [Refusal.LENGTH] + [Refusal.RANGE] * 4
        for name, cause in ("foreign", Refusal.PLACE), ("connecting", Refusal.BUSY):
            ctx.set(getattr(dut, name), 1)
            await post(ctx, 0, 1)
            assert (said[-1], ctx.get(dut.refusal)) == (0, cause)
            ctx.set(getattr(dut, name), 0)
        said.clear()
        for _ in range(14):
            await post(ctx, 0, 1)
        assert said == [1] * 12 + [0] * 2  # 16 wait
        assert ctx.get(dut.refusal) == Refusal.FULL
        assert ctx.get(dut.full)
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(30)
        said.clear()
        for _ in range(5):
            await post(ctx, 0, 1)
        assert said == [1] * 4 + [0]  # 20 are unfinished
        for _ in range(2):
            ctx.set(dut.completed, 1)
            await ctx.tick()
            ctx.set(dut.completed, 0)
            await ctx.tick().repeat(3)
        said.clear()
        for _ in range(3):
            await post(ctx, 0, 1)
        assert said == [1, 1, 0]

    Bench(dut, [], seed=0).run(main)


def test_writes_that_wait_are_stale_once_their_queue_pair_is_connected_anew():
    dut = WriteQueue(config=CONFIG, completions=20)
    bench = Bench(dut, [], seed=0)

    async def post(ctx, index, tag):
        fields = dict.fromkeys(("local", "remote", "rkey", "length", "with_immediate", "immediate"), 0)
        ctx.set(dut.write, fields | {"index": index, "tag": tag})
        ctx.set(dut.post, 1)
        await ctx.tick()
        ctx.set(dut.post, 0)
        await ctx.tick().repeat(6)

    async def connect(ctx, index):
        ctx.set(dut.connected_index, index)
        ctx.set(dut.connected, 1)
        await ctx.tick()
        ctx.set(dut.connected, 0)

    async def main(ctx):
        wanted = []
        for tag in range(30):  # so that places are used again
            await post(ctx, tag % 3, tag)
            if tag % 5 == 2:
                await connect(ctx, 1)
            wanted.append(tag)
            if tag % 4 == 3:
                ctx.set(dut.o.ready, 1)
                while wanted:
                    if ctx.get(dut.o.valid):
                        later = tag // 5 * 5 + 2 if tag % 5 >= 2 else tag // 5 * 5 - 3  # the last connection
                        stale = wanted[0] % 3 == 1 and wanted[0] <= later
                        assert ctx.get(dut.o.payload.tag) == wanted.pop(0)
                        assert ctx.get(dut.stale) == stale
                    await ctx.tick()
                ctx.set(dut.o.ready, 0)
            ctx.set(dut.completed, 1)
            await ctx.tick()
            ctx.set(dut.completed, 0)

    bench.run(main)
