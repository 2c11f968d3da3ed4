"""Reads of rows on their way to memory: each word once, in its order, and from memory only what is there."""

from collections import deque
from itertools import pairwise

import pytest

from fanin.hdl.param_server.streamed_reads import StreamedReads
from fanin.rdma.facts import PRESETS
from fanin.sim.rtl.memory import ReadMemory
from tests.hdl.rdma.bench import Bench
from tests.hdl.rdma.payloads import bursts_of
from tests.support import new_seed, slow

CONFIG = PRESETS["tiny"]
STEP = CONFIG.width // 8
BASE = 0x3FA0  # rows cross 4 KiB, and begin within a burst
BURST = 16


class Landed(ReadMemory):
    """A memory that is asked for what is there."""

    def _accept_address(self, cycle, address, length, size, burst):
        assert all(address + n * STEP in self.words for n in range(length + 1)), f"{address:#x} is not there"
        super()._accept_address(cycle, address, length, size, burst)


class Rows(Bench):
    """A source of rows that a writer puts into memory, and a NIC that reads each, some of it again.

    ``places`` rows fit in memory; ``back``: the probability that a packet is followed by an earlier one, of
    this row or of one that is still there; ``pause``: that the NIC pauses; ``given_up``: how many rows it gives
    up before their last packet; ``dropped``: and how many it never reads.
    """

    def __init__(self, seed, *, rows, words, places, stall=0.0, back=0.0, pause=0.0, given_up=0, dropped=0,
                 latency=20, **parameters):  # fmt: skip
        self.dut = StreamedReads(config=CONFIG, **parameters)
        super().__init__(self.dut, [], seed=seed, stall=stall, limit=60_000)
        self.rows, self.words, self.places = rows, words, places
        self.back, self.pause, self.latency = back, pause, latency
        self.content = [[self.rng.getrandbits(CONFIG.width) for _ in range(words)] for _ in range(rows)]
        self.mtu = self.rng.choice([4, 16, 64])  # words
        unread = self.rng.sample(range(rows), given_up + dropped)
        self.given_up, self.dropped = unread[:given_up], unread[given_up:]
        self.there = {}
        self.memory = Landed(self.dut.memory, self.there.get, latency=latency, stall=stall, seed=seed)
        self.memory.words = self.there
        self.complete = -1  # rows up to this one may be overwritten
        self.open = deque()
        self.asked = deque()  # what is to come: row, word, last
        self.made = []  # (row, word, cycle) on ``i``
        self.came = []  # the same on ``nic``
        self.asks = []  # cycle of each burst
        self.let_go = 0

    def address(self, row):
        return BASE + row % self.places * self.words * STEP

    async def source(self, ctx):
        """Rows, when their place is free."""
        i = self.dut.i
        for row in range(self.rows):
            while row - self.places > self.complete:
                await ctx.tick()
            for n in range(self.words):
                while self.rng.random() < self.stall:
                    await ctx.tick()
                await self.put(ctx, i, {"data": self.content[row][n], "last": n == self.words - 1})
                self.made.append((row, n, self.cycle))

    async def writer(self, ctx):
        """Whole bursts are written, in their order, and some cycles later they have landed."""
        begun, due = 0, deque()
        while True:
            bursts = []
            while begun < len(self.made):
                row, n, _ = self.made[begun]
                first = self.address(row) // STEP + n
                count = min(BURST - first % BURST, self.words - n)
                if begun + count > len(self.made):
                    break
                bursts.append((row, n, count))
                begun += count
            wait = self.rng.randint(1, self.latency)
            due.extend((self.cycle + wait, burst) for burst in bursts)
            landed = 0
            if due and due[0][0] <= self.cycle:
                _, (row, n, landed) = due.popleft()
                for k in range(n, n + landed):
                    self.there[self.address(row) + k * STEP] = self.content[row][k]
            ctx.set(self.dut.landed, landed)
            await ctx.tick()

    async def told(self, ctx):
        """The rows, one after the other."""
        for row in range(self.rows):
            while row - self.places > self.complete:
                await ctx.tick()
            said = {"address": self.address(row), "words": self.words, "memory_only": row in self.dropped}
            await self.put(ctx, self.dut.row, said)
            self.open.append(row)

    def packets(self, row):
        """Where those begin that the NIC reads of it."""
        starts = range(0, self.words * STEP, self.mtu * STEP)
        if row in self.dropped:
            return starts[:0]
        return starts[: self.rng.randrange(len(starts))] if row in self.given_up else starts

    async def ask(self, ctx, row, start, size):
        """A packet."""
        nic = self.dut.nic
        for address, count in bursts_of(self.address(row) + start, size, STEP):
            first = (address - self.address(row)) // STEP
            self.asked.extend((row, first + n, n == count - 1) for n in range(count))
            ctx.set(nic.araddr, address)
            ctx.set(nic.arlen, count - 1)
            ctx.set(nic.arvalid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(nic.arready)
            ctx.set(nic.arvalid, 0)

    async def main(self, ctx):
        """The NIC: packets in their order, now and then an earlier one."""
        rng, size, kept = self.rng, self.words * STEP, {}
        mtu = self.mtu * STEP
        ctx.set(self.dut.nic.rready, 1)
        for row in range(self.rows):
            while not self.open:
                await ctx.tick()
            assert self.open.popleft() == row
            kept[row] = 0
            for start in self.packets(row):
                if rng.random() < self.pause:
                    await ctx.tick().repeat(rng.choice([5, 40, 300]))
                await self.ask(ctx, row, start, min(mtu, size - start))
                kept[row] = start + mtu
                while rng.random() < self.back:
                    old = rng.choice([n for n in kept if kept[n]])
                    again = rng.randrange(0, kept[old], mtu)
                    await self.ask(ctx, old, again, min(mtu, size - again))
            while len(kept) >= max(self.places - 1, 1):  # the next row may be made meanwhile
                if self.places == 1:
                    while self.asked:
                        await ctx.tick()
                oldest = min(kept)
                del kept[oldest]
                while any(n == oldest for n, *_ in self.asked):
                    await ctx.tick()
                self.complete = oldest
        while self.asked or len(self.made) < self.rows * self.words:
            await ctx.tick()
        await ctx.tick().repeat(100)

    async def take(self, ctx):
        """Every word is the one that was asked for."""
        nic, memory = self.dut.nic, self.dut.memory
        ports = (nic.rvalid, nic.rdata, nic.rlast, self.dut.let_go, nic.arvalid & nic.arready, memory.rvalid)
        from_memory = 0
        async for _, _, valid, data, last, let_go, asks, reads in ctx.tick().sample(*ports):
            self.let_go += let_go
            self.asks += [self.cycle] * asks
            assert valid or not from_memory, "a word of memory takes longer than a cycle"
            from_memory = reads
            if valid:
                row, n, ends = self.asked.popleft()
                assert (data, last) == (self.content[row][n], ends), (row, n)
                self.came.append((row, n, self.cycle))

    def go(self):
        """Until all that was asked for has come and all rows were made."""
        self.run(self.main, self.source, self.writer, self.told, self.take, self.memory.process)
        assert not self.asked
        return self


@pytest.mark.parametrize("stall", [0.0, 0.3], ids=["full rate", "stalls"])
@pytest.mark.parametrize("places", [*slow(1, 4), 2])
@pytest.mark.parametrize("words", [3, 40, 200])
def test_whatever_is_read_again_comes_as_it_was_made(words, places, stall):
    rows = 4 if words == 200 else 12
    odds = {"back": 0.3, "pause": 0.1}
    Rows(
        new_seed(), rows=rows, words=words, places=places, stall=stall, depth=BURST, patience=10**6, **odds
    ).go()


@pytest.mark.parametrize(("patience", "stall"), [(1, 0.1), (2, 0.8), (30, 0.1), *slow((30, 0.8))])
@pytest.mark.parametrize("words", [3, 40])
def test_rows_that_are_given_up_do_not_stop_the_next_ones(words, patience, stall):
    odds = {"given_up": 2, "dropped": 1, "back": 0.2, "pause": 0.3}
    rows = Rows(
        new_seed(), rows=10, words=words, places=4, stall=stall, depth=BURST, patience=patience, **odds
    ).go()
    assert len(rows.given_up) <= rows.let_go <= rows.rows - len(rows.dropped)


class Late(Rows):
    """The NIC asks for the second half of a row some cycles after the first one; then for the next row."""

    def __init__(self, wait, **options):
        super().__init__(0, rows=2, words=4, places=4, **options)
        self.wait, self.limit = wait, 2000

    async def main(self, ctx):
        """Whenever it asks, no burst of a row is taken for one of the other."""
        half = self.words // 2 * STEP
        ctx.set(self.dut.nic.rready, 1)
        await self.ask(ctx, 0, 0, half)
        await ctx.tick().repeat(self.wait)
        await self.ask(ctx, 0, half, half)
        while len(self.open) < 2:
            await ctx.tick()
        await self.ask(ctx, 1, 0, 2 * half)
        while self.asked:
            await ctx.tick()


@pytest.mark.parametrize(("stall", "seen"), [(0.0, {0, 1, 2}), (0.5, {0, 2})])
def test_a_row_may_be_let_go_in_any_cycle(stall, seen):
    """Under stalls a memory that is slow at first makes both rows late, or none."""
    lets = {Late(wait, stall=stall, patience=20).go().let_go for wait in range(15, 50)}
    assert lets == seen


def test_rates_and_latencies_are_as_stated():
    rows = Rows(0, rows=3, words=200, places=4, patience=50)
    rows.mtu = 16
    rows.go()
    assert not rows.memory.requests
    assert not rows.let_go
    assert min(b - a for a, b in pairwise(rows.asks)) == 3
    cycles = [cycle for _, _, cycle in rows.came[:200]]
    assert cycles == list(range(cycles[0], cycles[0] + 200))
    waits = Rows(0, rows=2, words=200, places=4, stall=0.6).go()
    made = {(row, n): cycle for row, n, cycle in waits.made}
    assert min(cycle - made[row, n] for row, n, cycle in waits.came) == 2


@pytest.mark.parametrize("patience", [1, 2, 50])
def test_a_row_is_let_go_after_the_stated_time(patience):
    dut = StreamedReads(config=CONFIG, patience=patience)
    bench = Bench(dut, [], seed=0)
    times = {}

    async def main(ctx):
        await bench.put(ctx, dut.row, {"address": 0x100, "words": 4, "memory_only": 0})
        await ctx.tick().repeat(patience + 5)

    async def cycles(ctx):
        sampled = ctx.tick().sample(dut.row.valid & dut.row.ready, dut.let_go)
        async for _, _, taken, let_go in sampled:
            if taken:
                times["taken"] = bench.cycle
            if let_go:
                times["let go"] = bench.cycle

    bench.run(main, cycles)
    assert times["let go"] - times["taken"] == patience


def test_with_bypass_no_word_of_the_stream_waits_and_all_reads_go_to_memory():
    """A row of the job before is open, and some of its words are held."""
    dut = StreamedReads(config=CONFIG)
    bench = Bench(dut, [], seed=0)
    memory = ReadMemory(dut.memory, lambda address: address, latency=10, seed=0)
    came = []

    async def words(ctx):
        async for _, _, valid, word in ctx.tick().sample(dut.nic.rvalid, dut.nic.rdata):
            came.extend([word] * valid)

    async def main(ctx):
        await bench.put(ctx, dut.row, {"address": 0x100, "words": 8, "memory_only": 0})
        for _ in range(4):
            await bench.put(ctx, dut.i, {"data": 0x5A, "last": 0})
        ctx.set(dut.bypass, 1)
        ctx.set(dut.nic.rready, 1)
        await ctx.tick().repeat(8)
        ctx.set(dut.nic.araddr, 0x100)
        ctx.set(dut.nic.arlen, 7)
        ctx.set(dut.nic.arvalid, 1)
        ctx.set(dut.i.valid, 1)
        for cycle in range(300):
            assert ctx.get(dut.i.ready)
            _, _, taken = await ctx.tick().sample(dut.nic.arready)
            if taken:
                ctx.set(dut.nic.arvalid, 0)
            ctx.set(dut.i.payload.last, cycle % 3 == 0)

    bench.run(main, words, memory.process)
    assert came == [0x100 + n * STEP for n in range(8)]
