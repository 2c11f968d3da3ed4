"""Bursts of w wait for their words, and no longer."""

from collections import deque
from itertools import pairwise

import pytest

from fanin.hdl.bus.axi4 import BOUNDARY, MAX_BURST
from fanin.hdl.param_server.read_gate import ReadGate
from fanin.rdma.facts import PRESETS
from fanin.sim.rtl.memory import ReadMemory
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = PRESETS["tiny"]
STEP = CONFIG.width // 8
WORDS_OF_4_KIB = BOUNDARY // STEP
FAST, SLOW = (0, 0, 1, 2, 16), (0, 0, 0, 0, 1)


class Gate(Bench):
    """Rows that land at random, and someone who reads w of each."""

    def __init__(self, seed, *, words, tail, rows, burst, pace, stall=0.0):
        self.dut = ReadGate(config=CONFIG)
        super().__init__(self.dut, [], seed=seed, stall=stall, limit=20_000)
        self.words, self.tail, self.rows, self.burst, self.pace = words, tail, rows, burst, pace
        self.row = 1 + words + tail
        self.landed = self.row  # row 0
        self.told = []  # cycle in which each word was told to have landed
        self.passed = []  # cycle, first word and words of each burst
        self.asked = deque()
        self.memory = ReadMemory(self.dut.axi, lambda address: address, latency=3, stall=stall, seed=seed)
        self.started = False
        self.read, self.expected = [], []

    def cuts(self):
        """Bursts of all rows: their first word, counted from row 0's head, and words."""
        for row in range(self.rows):
            at, end = row * self.row + 1, row * self.row + 1 + self.words
            while at < end:
                count = min(self.rng.randint(1, self.burst), end - at, WORDS_OF_4_KIB - at % WORDS_OF_4_KIB)
                yield at, count
                at += count

    async def land(self, ctx):
        """Some words a cycle, in ever other numbers."""
        rng, total = self.rng, self.rows * self.row
        while not self.started:
            await ctx.tick()
        while self.landed < total:
            count = min(rng.choice(self.pace), total - self.landed)
            ctx.set(self.dut.landed, count)
            self.landed += count
            self.told += [self.cycle] * count
            await ctx.tick()
        ctx.set(self.dut.landed, 0)

    async def watch(self, ctx):
        """When bursts pass, and what comes."""
        axi, reader = self.dut.axi, self.dut.reader
        sampled = ctx.tick().sample(
            axi.arvalid, axi.arready, axi.araddr, axi.arlen, axi.rvalid, reader.rvalid, reader.rdata
        )
        async for _, _, valid, ready, address, length, comes, handed_on, data in sampled:
            if valid and ready:
                assert address // STEP + length < self.landed
                self.passed.append((self.cycle - 1, address // STEP, length + 1))
            assert comes == handed_on
            if comes:
                self.read.append(data // STEP)

    async def main(self, ctx):
        dut = self.dut
        ctx.set(dut.words, self.words)
        ctx.set(dut.tail, self.tail)
        ctx.set(dut.reader.rready, 1)
        ctx.set(dut.reader.arsize, STEP.bit_length() - 1)
        ctx.set(dut.reader.arburst, 1)
        await ctx.tick().repeat(2)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        self.started = True
        for at, count in self.cuts():
            while self.rng.random() < self.stall:
                await ctx.tick()
            ctx.set(dut.reader.araddr, at * STEP)
            ctx.set(dut.reader.arlen, count - 1)
            ctx.set(dut.reader.arvalid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.reader.arready)
            ctx.set(dut.reader.arvalid, 0)
            self.expected += range(at, at + count)
        while len(self.read) < len(self.expected):
            await ctx.tick()
        await ctx.tick().repeat(20)
        assert self.read == self.expected

    def pass_all(self):
        """All pass in the end."""
        self.run(self.main, self.land, self.watch, self.memory.process)


@pytest.mark.parametrize("stall", [0.0, 0.3], ids=["full rate", "stalls"])
@pytest.mark.parametrize(("words", "tail"), [(1, 1), (2, 3), (17, 1), (50, 2), (300, 6)])
def test_no_burst_passes_before_its_words_are_there(words, tail, stall):
    for burst in (1, 16, MAX_BURST):
        Gate(
            new_seed(),
            words=words,
            tail=tail,
            rows=3 if words > 20 else 12,
            burst=burst,
            pace=FAST,
            stall=stall,
        ).pass_all()


def test_a_burst_passes_every_4_cycles_and_3_behind_its_last_word():
    free = Gate(0, words=40, tail=1, rows=1, burst=1, pace=FAST)
    free.pass_all()
    cycles = [cycle for cycle, *_ in free.passed]
    assert {b - a for a, b in pairwise(cycles)} == {4}
    waits = Gate(0, words=40, tail=1, rows=2, burst=16, pace=SLOW)
    waits.pass_all()
    behind = [
        cycle - waits.told[at + count - 1 - waits.row] for cycle, at, count in waits.passed if at > waits.row
    ]
    assert min(behind) == 3
