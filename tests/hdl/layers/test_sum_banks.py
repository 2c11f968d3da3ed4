"""Memories into which blocks are added, and that pixels read, beside an array of golden sums."""

import random

import numpy as np
import pytest
from amaranth import Module
from amaranth.sim import Simulator

from fanin.cnn.layers.schedule import REUSE
from fanin.golden.fp32 import add
from fanin.hdl.layers.banks import BLOCK, Banks
from fanin.hdl.layers.gradient_rows import SumBanks
from tests.fp32_values import SPECIAL
from tests.hdl.layers.test_banks import RASTERS, ROWS, Model, accesses, widths
from tests.support import new_seed


def _sum(old, term):
    return int(add(*np.array([old, term], np.uint32).view(np.float32)).view(np.uint32)[()])


class Sums:
    """Places that are added to, never two terms of a sum less than REUSE cycles apart, and what comes of it."""

    def __init__(self, raster, cycles, rng):
        self.raster, self.rng = raster, rng
        self.model = Model(raster)
        self.blocks = list(accesses(raster, BLOCK, self.model, rng, cycles))
        self.busy = []  # words of the last cycles
        self.pending = []  # per cycle, what readers see later

    def step(self):
        """The next cycle's (add, place, terms, first); sums follow."""
        place, written = self.blocks.pop()
        terms = [self.rng.choice(SPECIAL) for _ in written]
        first = self.rng.getrandbits(self.raster.columns)
        lately = {at for words in self.busy[1 - REUSE :] for at in words}
        enabled = self.rng.random() < 0.9 and not lately & set(written)
        added = [(at, n) for n, at in enumerate(written) if enabled and at is not None]
        self.busy.append([at for at, _ in added])
        self.pending.append([(at, terms[n], first >> n // self.raster.lanes & 1) for at, n in added])
        if len(self.pending) >= SumBanks.READ_DELAY:
            for (row, column, channel), term, replaces in self.pending.pop(0):
                words = self.model.words[row][column]
                words[channel] = _sum(0 if replaces else words[channel], term)
        return enabled, place, terms, first


def _run(raster, words, cycles=400):
    seed = new_seed()
    rng = random.Random(seed)
    dut = SumBanks(raster=raster, rows=ROWS, words=words)
    sums = Sums(raster, cycles, rng)
    reads = list(accesses(raster, words, sums.model, rng, cycles))
    awaited = [None] * Banks.READ
    checked = 0

    async def bench(ctx):
        nonlocal checked
        for place, seen in reads:
            ctx.set(dut.read.place, place)
            awaited.append([sums.model.words[row][column][channel] for row, column, channel in seen])
            enabled, block, terms, first = sums.step()
            ctx.set(dut.add, enabled)
            ctx.set(dut.place, block)
            ctx.set(dut.terms, terms)
            ctx.set(dut.first, first)
            if (expected := awaited.pop(0)) is not None:
                assert [ctx.get(dut.read.data[i]) for i in range(words)] == expected
                checked += any(expected)
            await ctx.tick()

    top = Module()
    top.submodules.dut = dut
    sim = Simulator(top)
    sim.add_clock(4e-9)
    sim.add_testbench(bench)
    sim.run()
    assert checked > 20


@pytest.mark.parametrize("name", RASTERS)
def test_pixels_see_the_sums_of_blocks(name):
    for words in widths(RASTERS[name])[-2:]:
        _run(RASTERS[name], words)
