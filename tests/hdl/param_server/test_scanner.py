"""The scanner beside a memory in which workers put trailers: each gradient is told of once."""

from itertools import pairwise

import pytest

from fanin.hdl.param_server.scanner import Scanner
from fanin.rdma.facts import PRESETS
from fanin.sim.rtl.memory import ReadMemory
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = PRESETS["tiny"]
STEP = CONFIG.width // 8
SLOTS = 2


class Bunches(ReadMemory):
    """Words come in bunches, back to back."""

    def _accept_address(self, cycle, address, length, size, burst):
        cycle = cycle // 64 * 64 + 64
        super()._accept_address(cycle, address, length, size, burst)


class Table(Bench):
    """Workers' slots: what the scanner is told of them, and what it says."""

    def __init__(self, seed, *, workers, memory=ReadMemory, latency=20, stall=0.0):
        self.dut = Scanner(config=CONFIG)
        super().__init__(self.dut, ["o"], seed=seed, stall=stall)
        self.workers = workers
        self.trailers = {}  # by address: others and version
        self.memory = memory(self.dut.axi, self._word, latency=latency, stall=stall, seed=seed)
        self.applied = [0] * CONFIG.queue_pairs  # as the scanner was told
        self.under_way = []  # addresses of reads without an answer
        self.answers, self.found = [], []  # cycles in which a word came, and in which ``o`` was valid
        self.seen = 0  # transfers of ``o``

    def _word(self, address):
        others, version = self.trailers.get(address, (0, 0))
        filler = self.rng.getrandbits(CONFIG.width - 64)
        return others | filler << 32 | version << CONFIG.width - 32

    @staticmethod
    def place(worker, version):
        """Where the trailer of a version is."""
        return 0x1000 * (worker + 1) + version % SLOTS * STEP

    async def tell(self, ctx, worker, lgvnum):
        """The next gradient's place."""
        ctx.set(
            self.dut.place.payload,
            {"index": worker, "trailer": self.place(worker, lgvnum + 1), "lgvnum": lgvnum},
        )
        ctx.set(self.dut.place.valid, 1)
        await ctx.tick()
        ctx.set(self.dut.place.valid, 0)
        self.applied[worker] = lgvnum

    async def reads(self, ctx):
        """Never two of a worker at once."""
        axi, o = self.dut.axi, self.dut.o
        sampled = ctx.tick().sample(axi.arvalid, axi.arready, axi.araddr, axi.rvalid, o.valid)
        async for _, _, valid, ready, address, answered, told in sampled:
            self.answers += [self.cycle] * answered
            self.found += [self.cycle] * told
            if answered:
                self.under_way.pop(0)
            if valid and ready:
                worker = address // 0x1000
                assert worker not in self.under_way
                self.under_way.append(worker)

    def scan(self, main):
        """With memory and monitors."""
        self.run(main, self.reads, self.memory.process)


@pytest.mark.parametrize("stall", [0.0, 0.3], ids=["full rate", "stalls"])
@pytest.mark.parametrize(("memory", "latency"), [(ReadMemory, 1), (ReadMemory, 30), (Bunches, 1)])
def test_every_gradient_is_told_of_once(memory, latency, stall):
    table = Table(new_seed(), workers=4, memory=memory, latency=latency, stall=stall)
    dut, rng, rounds = table.dut, table.rng, 12
    pushed = [0] * 4
    told = [[] for _ in pushed]
    waiting = []  # for the server, which takes its time

    async def main(ctx):
        ctx.set(dut.workers, 4)
        for worker in range(4):
            await table.tell(ctx, worker, 0)
        ctx.set(dut.enable, 1)
        while min(map(len, told)) < rounds:
            await ctx.tick()
            worker = rng.randrange(4)
            if pushed[worker] < min(rounds, table.applied[worker] + SLOTS) and rng.random() < 0.1:
                pushed[worker] += 1
                table.trailers[table.place(worker, pushed[worker])] = (
                    7 * pushed[worker] + worker,
                    pushed[worker],
                )
            for _, found in table.log["o"][table.seen :]:
                assert (found.version, found.others) == (
                    len(told[found.index]) + 1,
                    7 * found.version + found.index,
                )
                told[found.index].append(found.version)
                waiting.append(found.index)
                table.seen += 1
            if waiting and rng.random() < 0.2:
                worker = waiting.pop(rng.randrange(len(waiting)))
                await table.tell(ctx, worker, told[worker][-1])
        for worker in waiting:
            await table.tell(ctx, worker, told[worker][-1])
        await ctx.tick().repeat(200)
        ctx.set(dut.enable, 0)
        await ctx.tick().repeat(200)
        assert not ctx.get(dut.busy)

    table.scan(main)
    assert told == [list(range(1, rounds + 1))] * 4
    assert len(table.log["o"]) == 4 * rounds


def test_workers_have_their_turns_and_a_read_takes_3_cycles():
    table = Table(0, workers=4, latency=4)

    async def main(ctx):
        ctx.set(table.dut.workers, 4)
        for worker in range(4):
            await table.tell(ctx, worker, 5)
        ctx.set(table.dut.enable, 1)
        await ctx.tick().repeat(200)

    table.scan(main)
    cycles, addresses, _ = zip(*table.memory.requests[:40], strict=True)
    assert [address // 0x1000 - 1 for address in addresses] == [n % 4 for n in range(40)]
    assert {b - a for a, b in pairwise(cycles[4:])} == {3}


def test_workers_that_are_excluded_or_absent_are_not_polled():
    table = Table(0, workers=4, latency=4)
    dut = table.dut

    async def main(ctx):
        ctx.set(dut.workers, 3)
        for worker in range(4):
            await table.tell(ctx, worker, 0)
        table.trailers[table.place(3, 1)] = (0, 1)
        ctx.set(dut.enable, 1)
        await ctx.tick().repeat(100)
        ctx.set(dut.excluded, 0b010)
        await ctx.tick().repeat(10)
        table.seen = len(table.memory.requests)
        table.trailers[table.place(1, 1)] = (0, 1)
        await ctx.tick().repeat(100)

    table.scan(main)
    asked = [address // 0x1000 - 1 for _, address, _ in table.memory.requests]
    assert set(asked[: table.seen]) == {0, 1, 2}
    assert set(asked[table.seen :]) == {0, 2}
    assert not table.log["o"]


@pytest.mark.parametrize("again", [0, 1])
def test_what_is_not_used_is_asked_about_again(again):
    table = Table(0, workers=1, latency=4)
    dut = table.dut
    table.trailers[table.place(0, 1)] = (3, 1)

    async def main(ctx):
        ctx.set(dut.workers, 1)
        ctx.set(dut.again, again)
        await table.tell(ctx, 0, 0)
        ctx.set(dut.enable, 1)
        await ctx.tick().repeat(100)

    table.scan(main)
    assert table.found[0] == table.answers[0] + 3
    assert (len(table.log["o"]) > 4) if again else len(table.log["o"]) == 1


def test_an_error_is_told_of():
    table = Table(0, workers=1, latency=4)
    table.memory.errors = {table.place(0, 1)}
    errors = []

    async def main(ctx):
        ctx.set(table.dut.workers, 1)
        await table.tell(ctx, 0, 0)
        ctx.set(table.dut.enable, 1)
        for _ in range(100):
            errors.append(ctx.get(table.dut.error))
            await ctx.tick()

    table.scan(main)
    assert sum(errors) in (len(table.memory.requests), len(table.memory.requests) - 1) != (0, -1)
