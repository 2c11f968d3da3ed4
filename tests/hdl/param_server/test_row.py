"""Rows word by word beside the layout that golden model and workers read."""

import random

import numpy as np
import pytest

from fanin.hdl.param_server.row import RowMaker
from fanin.param_server.facts import ParamServerConfig, RowLayout
from fanin.rdma.facts import RdmaConfig
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed, simulate

CONFIG = RdmaConfig(width=128, queue_pairs=32, buffer_words=1024, fetch_words=1024)
STEP = CONFIG.width // 8


class Rows:
    """Orders, updated words, and the rows that come of them."""

    def __init__(self, rng, *, workers, words):
        self.rng, self.workers = rng, workers
        self.sizes = ParamServerConfig(parameters=words * STEP // 4, workers=workers, width=CONFIG.width)
        self.layout = RowLayout(self.sizes, 0, 0)
        self.memory = bytearray(self.layout.size)
        self.lgvnum = np.frombuffer(self.memory, "<u4", workers, self.layout.lgvnum)
        self.orders, self.updated, self.expected = [], [], []

    @property
    def settings(self):
        return {"workers": self.workers, "words": self.sizes.words}

    def add(self):
        """One row more."""
        rng, layout = self.rng, self.layout
        index, lgvnum, version = rng.randrange(self.workers), rng.getrandbits(32), rng.getrandbits(32)
        self.orders.append({"index": index, "version": version, "lgvnum": lgvnum})
        self.lgvnum[index] = lgvnum
        self.memory[layout.w : layout.lgvnum] = rng.randbytes(layout.lgvnum - layout.w)
        for at in (layout.head_version, layout.tail_version):
            self.memory[at : at + 4] = version.to_bytes(4, "little")
        cut = [int.from_bytes(self.memory[n : n + STEP], "little") for n in range(0, layout.size, STEP)]
        first = layout.w // STEP
        self.updated += cut[first : first + self.sizes.words]
        self.expected += [{"data": word, "last": n == len(cut) - 1} for n, word in enumerate(cut)]


def _said(log):
    return [{"data": word.data, "last": word.last} for _, word in log]


@pytest.mark.parametrize(("workers", "words"), [(1, 1), (3, 1), (3, 7), (4, 2), (15, 5), (20, 3)])
def test_rows_are_as_they_lie_in_memory(workers, words):
    seed = new_seed()
    rows = Rows(random.Random(seed), workers=workers, words=words)
    for _ in range(8):
        rows.add()
    log = simulate(
        RowMaker(config=CONFIG),
        drive={"order": rows.orders, "updated": rows.updated},
        collect={"o": len(rows.expected)},
        settings=rows.settings,
        seed=seed,
    )
    assert _said(log["o"]) == rows.expected


@pytest.mark.parametrize(("workers", "words"), [(3, 1), (20, 4)])
def test_a_word_a_cycle_across_rows(workers, words):
    rows = Rows(random.Random(new_seed()), workers=workers, words=words)
    for _ in range(6):
        rows.add()
    log = simulate(
        RowMaker(config=CONFIG),
        drive={"order": rows.orders, "updated": rows.updated},
        collect={"o": len(rows.expected)},
        settings=rows.settings,
        stall=0.0,
    )
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(cycles[0], cycles[0] + len(rows.expected)))
    size = len(rows.expected) // 6
    assert [cycle + 1 for cycle, _ in log["order"]] == cycles[::size]
    assert [cycle + 1 for cycle, _ in log["updated"][:words]] == cycles[1 : 1 + words]


def test_a_worker_that_is_cleared_begins_with_0():
    dut = RowMaker(config=CONFIG)
    rows = Rows(random.Random(new_seed()), workers=20, words=2)
    bench = Bench(dut, ["o"], seed=0)

    async def main(ctx):
        for name, value in rows.settings.items():
            ctx.set(getattr(dut, name), value)
        for _ in range(3):
            for _ in range(10):
                rows.add()
                await bench.put(ctx, dut.order, rows.orders.pop())
                for word in rows.updated:
                    await bench.put(ctx, dut.updated, word)
                rows.updated.clear()
            await ctx.tick().repeat(8)
            for index in rows.rng.sample(range(20), 9):
                ctx.set(dut.clear.payload, index)
                ctx.set(dut.clear.valid, 1)
                await ctx.tick()
                ctx.set(dut.clear.valid, 0)
                rows.lgvnum[index] = 0

    bench.run(main)
    assert _said(bench.log["o"]) == rows.expected
