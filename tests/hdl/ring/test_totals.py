"""The checksum of stored sums: its value, and what is compared with what."""

import random

import numpy as np
import pytest
from amaranth import ResetInserter, Signal
from amaranth.sim import Simulator

from fanin.hdl.ring.totals import TotalsCheck
from fanin.wire.ring import SUM_HISTORY
from tests.support import new_seed


def checksum(words, width):
    """The exclusive or of half words, each rotated to the left by its place; on arrays of bits."""
    total = np.zeros(16, dtype=np.uint8)
    for word in words:
        bits = np.array([word >> n & 1 for n in range(width)], dtype=np.uint8).reshape(-1, 16)
        for place, half in enumerate(bits):
            total ^= np.roll(half, place)
    return int(np.packbits(total, bitorder="little").view("<u2")[0])


def heard(number, total):
    return {"valid": 1, "operation": number % 256, "slice": total >> 8, "length": total & 0xFF}


class Check:
    """A TotalsCheck, the checksum behind each of its descriptors, and what it has said."""

    def __init__(self, width, rng):
        self.dut, self.width, self.rng = TotalsCheck(width=width), width, rng
        self.words, self.sums, self.events, self.news = [], [0], [], []

    def run(self, script):
        async def main(ctx):
            await script(ctx)
            await ctx.tick().repeat(8)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        simulator.add_testbench(self._watch, background=True)
        simulator.run()

    async def _watch(self, ctx):
        dut = self.dut
        async for _, _, differs, agreed, news, told in ctx.tick().sample(
            dut.differs, dut.agreed, dut.news, dut.told
        ):
            self.events += [name for name, bit in (("differs", differs), ("agreed", agreed)) if bit]
            if news:
                self.news.append((told.operation, told.slice << 8 | told.length))

    async def store(self, ctx, count):
        """A descriptor of so many words, with pauses; its end is a word, or lies behind the vector."""
        outside = not count or self.rng.random() < 0.5
        while count:
            valid, word = self.rng.random() < 0.6, self.rng.getrandbits(self.width)
            count -= valid
            final = valid and not count and not outside
            ctx.set(self.dut.word, {"valid": valid, "data": word, "final": final})
            await ctx.tick()
            self.words += [word] * valid
        ctx.set(self.dut.word, {"valid": 0, "data": self.rng.getrandbits(self.width), "final": outside})
        if outside:
            await ctx.tick()
            ctx.set(self.dut.word.final, 0)
        self.sums.append(checksum(self.words, self.width))

    async def hear(self, ctx, number, total):
        ctx.set(self.dut.heard, heard(number, total))
        await ctx.tick()
        ctx.set(self.dut.heard.valid, 0)
        await ctx.tick().repeat(4)


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_checksums_are_those_of_all_words_so_far(width):
    check = Check(width, random.Random(new_seed()))

    async def script(ctx):
        for _ in range(20):
            await check.store(ctx, check.rng.randrange(6))

    check.run(script)
    assert check.news == [*enumerate(check.sums)][1:]


def test_a_checksum_by_hand():
    """Words of two values: halves 0x0001, 0x0001 rotated by one, 0x8000 rotated by two, 0x0100 by three."""
    assert checksum([0x0100_8000_0001_0001], 64) == 0x0001 ^ 0x0002 ^ 0x0002 ^ 0x0800 == 0x0801


def test_an_answer_is_compared_with_the_checksum_behind_the_same_descriptor():
    """Also one that is older than the last, or comes before this node has stored as much."""
    check = Check(64, random.Random(new_seed()))

    async def script(ctx):
        await check.hear(ctx, 0, 0x1234)  # nothing is stored: nothing to compare
        for _ in range(300):
            await check.store(ctx, 1)
        await ctx.tick().repeat(5)
        await check.hear(ctx, 300, check.sums[300])
        assert check.events == ["agreed"]
        await check.hear(ctx, 300, check.sums[300] ^ 0x0100)
        assert check.events == ["agreed", "differs"]
        for back in range(SUM_HISTORY):
            await check.hear(ctx, 300 - back, check.sums[300 - back])
        assert check.events[2:] == ["agreed"] * SUM_HISTORY
        await check.hear(ctx, 300 - SUM_HISTORY, 0)  # forgotten
        assert len(check.events) == 2 + SUM_HISTORY
        await check.hear(ctx, 302, 0)  # replaced by what comes next
        await check.hear(ctx, 301, check.sums[300])
        assert len(check.events) == 2 + SUM_HISTORY
        await check.store(ctx, 0)  # a vector whose words all lie behind its end changes no checksum
        await ctx.tick().repeat(8)
        assert check.events[2 + SUM_HISTORY :] == ["agreed"]

    check.run(script)


def test_the_latencies_are_those_of_the_docstring():
    """From a final word to ``news`` 4 cycles, from an answer to ``agreed`` 3."""
    check = Check(64, random.Random(new_seed()))
    dut = check.dut

    async def cycles(ctx, begin, end, signal):
        ctx.set(*begin)
        for cycle in range(1, 10):
            await ctx.tick()
            ctx.set(*end)
            if ctx.get(signal):
                return cycle
        return None

    async def script(ctx):
        word = {"valid": 1, "data": 0x0001_0000_0000_0001, "final": 1}
        nothing = {"valid": 0, "data": 0, "final": 0}
        assert await cycles(ctx, (dut.word, word), (dut.word, nothing), dut.news) == 4
        answer = heard(1, checksum([word["data"]], 64))
        assert await cycles(ctx, (dut.heard, answer), (dut.heard.valid, 0), dut.agreed) == 3

    check.run(script)


def test_after_a_reset_nothing_of_the_last_job_is_compared():
    check, reset = Check(64, random.Random(new_seed())), Signal()
    check.dut, inner = ResetInserter(reset)(check.dut), check.dut
    check.dut.word, check.dut.heard = inner.word, inner.heard

    async def script(ctx):
        for _ in range(4):
            await check.store(ctx, 2)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        check.events.clear()
        for number in (0, 4, 255):
            await check.hear(ctx, number, 0xBEEF)
        check.words.clear()
        await check.store(ctx, 2)
        await ctx.tick().repeat(5)
        for number in (0, 3, 4, 2):
            await check.hear(ctx, number, 0xBEEF)
        assert check.events == []
        await check.hear(ctx, 1, checksum(check.words, 64))
        assert check.events == ["agreed"]

    check.run(script)
