"""Scans go round as algorithm 1 does; without them gradients keep their order."""

from itertools import groupby, pairwise

import pytest

from fanin.hdl.param_server.scan_queue import ScanQueue
from fanin.rdma.facts import PRESETS
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = PRESETS["tiny"]


class Queue(Bench):
    """Workers with a gradient now and then, one each at most, as the scanner finds them."""

    def __init__(self, seed, *, workers, stall=0.0, busy=0.0):
        self.dut = ScanQueue(config=CONFIG)
        super().__init__(self.dut, ["o"], seed=seed, stall=stall)
        self.workers, self.busy = workers, busy
        self.given = []  # worker, version
        self.held = set()  # workers whose gradients have not been handed out
        self.seen = 0  # items that were handed out
        self.sends_back = 0.0

    async def give(self, ctx, total):
        """So many gradients, at random times."""
        dut = self.dut
        ctx.set(dut.workers, self.workers)
        versions = [0] * self.workers
        while len(self.given) < total:
            free = sorted(set(range(self.workers)) - self.held)
            if not free or self.rng.random() < 0.7:
                await ctx.tick()
                continue
            worker = self.rng.choice(free)
            versions[worker] += 1
            self.held.add(worker)
            self.given.append((worker, versions[worker]))
            await self.put(ctx, dut.i, {"index": worker, "version": versions[worker], "others": worker})
        while self.held or ctx.get(dut.busy):
            await ctx.tick()

    async def look(self, ctx):
        """The taker looks for a gradient, or has others to do; it may not use one."""
        while True:
            ctx.set(self.dut.looks, self.rng.random() >= self.busy)
            ctx.set(self.dut.again, self.rng.random() < self.sends_back)
            await ctx.tick()

    def noted(self):
        for _, said in self.log["o"][self.seen :]:
            self.seen += 1
            if not said.ends_scan:
                self.held.discard(said.index)


@pytest.mark.parametrize(("stall", "busy"), [(0.0, 0.0), (0.4, 0.3)], ids=["full rate", "stalls"])
@pytest.mark.parametrize("workers", [1, 3, CONFIG.queue_pairs])
def test_a_scan_goes_once_round_the_workers_and_ends_if_it_found_some(workers, stall, busy):
    queue = Queue(new_seed(), workers=workers, stall=stall, busy=busy)

    async def main(ctx):
        ctx.set(queue.dut.scan, 1)
        await queue.give(ctx, 30 * workers)

    queue.run(main, queue.look)
    said = [item for _, item in queue.log["o"]]
    assert sorted((item.index, item.version) for item in said if not item.ends_scan) == sorted(queue.given)
    assert said[-1].ends_scan
    scans = [
        [item.index for item in items] for ends, items in groupby(said, lambda item: item.ends_scan) if not ends
    ]
    assert len(scans) == sum(item.ends_scan for item in said), "an end without a gradient, or two"
    assert all(scan == sorted(set(scan)) for scan in scans)
    assert workers == 1 or any(len(scan) > 1 for scan in scans)


def test_a_gradient_that_comes_where_the_scan_has_been_is_the_next_ones():
    queue = Queue(0, workers=4)
    dut = queue.dut

    async def main(ctx):
        ctx.set(dut.scan, 1)
        ctx.set(dut.workers, 4)
        await queue.put(ctx, dut.i, {"index": 1, "version": 1, "others": 0})
        ctx.set(dut.looks, 1)
        while not queue.log["o"]:
            await ctx.tick()
        ctx.set(dut.looks, 0)
        for worker in 0, 3:
            await queue.put(ctx, dut.i, {"index": worker, "version": 1, "others": 0})
        await ctx.tick().repeat(10)
        assert len(queue.log["o"]) == 1, "the scan goes on before the control takes its result"
        ctx.set(dut.looks, 1)
        await ctx.tick().repeat(20)

    queue.run(main)
    assert [-1 if item.ends_scan else item.index for _, item in queue.log["o"]] == [1, 3, -1, 0, -1]


def test_a_scan_takes_a_cycle_for_a_worker_and_2_more_where_it_finds_a_gradient():
    queue = Queue(0, workers=4)
    dut = queue.dut

    async def main(ctx):
        ctx.set(dut.scan, 1)
        ctx.set(dut.workers, 4)
        ctx.set(dut.looks, 1)
        await ctx.tick()  # to worker 0
        ctx.set(dut.looks, 0)
        for worker in 0, 1, 3:
            await queue.put(ctx, dut.i, {"index": worker, "version": 1, "others": 0})
        await ctx.tick().repeat(5)
        ctx.set(dut.looks, 1)
        await ctx.tick().repeat(20)

    queue.run(main)
    cycles = [cycle for cycle, _ in queue.log["o"]]
    assert [after - before for before, after in pairwise(cycles)] == [3, 4, 2]


def test_a_scan_whose_gradients_are_all_sent_back_has_no_end():
    queue = Queue(new_seed(), workers=3)
    queue.sends_back = 1.0

    async def main(ctx):
        ctx.set(queue.dut.scan, 1)
        await queue.give(ctx, 20)

    queue.run(main, queue.look)
    assert len(queue.log["o"]) == 20
    assert not any(item.ends_scan for _, item in queue.log["o"])


@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_without_scans_gradients_leave_as_they_came(stall):
    queue = Queue(new_seed(), workers=3, stall=stall, busy=0.5)

    async def main(ctx):
        await queue.give(ctx, 60)

    queue.run(main, queue.look)
    assert [(item.index, item.version) for _, item in queue.log["o"]] == queue.given
    assert not any(item.ends_scan for _, item in queue.log["o"])
