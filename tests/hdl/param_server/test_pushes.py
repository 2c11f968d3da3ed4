"""Every row goes to whom it is for, and is free when nobody reads it any more."""

from itertools import pairwise

import pytest

from fanin.hdl.param_server.pushes import Pushes
from fanin.rdma import PRESETS, Ending
from tests.hdl.rdma.bench import Bench
from tests.support import new_seed

CONFIG = PRESETS["tiny"]
ROW_BYTES = 3 * CONFIG.width // 8
MODES = {"barter": {}, "broadcast": {"broadcast": True}, "barrier": {"barrier": True}}


class Rows(Bench):
    """Rows of random workers, in rounds of all, or for all; a NIC that completes in any order of queue pairs.

    Pushes to a worker of ``fails`` fail from its second one on.
    """

    def __init__(self, seed, *, workers, rows, barrier=False, broadcast=False, stall=0.0, fails=()):
        self.dut = Pushes(config=CONFIG)
        super().__init__(self.dut, ["row", "post"], seed=seed, stall=stall, limit=20_000)
        self.workers, self.rows, self.fails = workers, rows, fails
        self.barrier, self.broadcast = barrier, broadcast
        self.places = [{"index": n, "remote": self.rng.getrandbits(64), "rkey": n + 9} for n in range(workers)]
        self.given = []  # pushes, in their order
        self.read = {}  # tag and receiver of the posts that have not ended
        self.ended = []  # worker, ending
        self.excluded = set()

    def order(self, total):
        """Workers, in the order in which their gradients came."""
        while total > 0:
            turn = self.rng.sample(range(self.workers), self.workers)
            turn = turn if self.barrier else turn[:1]
            yield from turn[:total]
            total -= len(turn)

    async def give(self, ctx, total):
        """As the control does: a row once it is free."""
        dut = self.dut
        for number, worker in enumerate(self.order(total), 1):
            row = number % self.rows
            while ctx.get(dut.occupied) >> row & 1 or self.rng.random() < self.stall:
                await ctx.tick()
            push = {
                "index": worker, "remote": self.rng.getrandbits(64), "rkey": worker + 1, "row": row,
                "second": self.rng.getrandbits(1), "local": row * 0x1000,
            }  # fmt: skip
            self.given.append(push)
            await self.put(ctx, dut.push, push)

    def expected(self):
        """What is posted of it, in its order, if no worker is excluded."""
        if self.broadcast:
            for number, push in enumerate(self.given, 1):
                for place in self.places:
                    remote = (place["remote"] + number % 2 * ROW_BYTES) % (1 << 64)
                    yield (place["index"], place["rkey"], remote, push["local"], push["row"], ROW_BYTES)
            return
        step = self.workers if self.barrier else 1
        for first in range(0, len(self.given) - step + 1, step):
            turn = self.given[first : first + step]
            for push in turn:
                remote = (push["remote"] + push["second"] * ROW_BYTES) % (1 << 64)
                last = turn[-1]
                yield (push["index"], push["rkey"], remote, last["local"], last["row"], ROW_BYTES)

    def posted(self):
        names = ("index", "rkey", "remote", "local", "tag", "length")
        return [tuple(said[name] for name in names) for _, said in self.log["post"]]

    def noted(self):
        """What has been posted is under way."""
        for _, said in self.log["post"][len(self.read) :]:
            self.read[len(self.read)] = (said.tag, said.index)

    async def complete(self, ctx):
        """One after the other, each queue pair's in their order."""
        said, done = self.dut.completion, set()
        while True:
            waiting = {}
            for number, (tag, worker) in self.read.items():
                if number not in done:
                    waiting.setdefault(worker, (number, tag))
            if not waiting or self.rng.random() < 0.8:
                await ctx.tick()
                continue
            worker = self.rng.choice(sorted(waiting))
            number, tag = waiting[worker]
            assert ctx.get(self.dut.occupied) >> tag & 1, "a row is free that is still read"
            fails = worker in self.fails and (worker, Ending.DONE) in self.ended
            ending = Ending.RETRIES if fails else Ending.DONE
            await self.put(ctx, said, {"index": worker, "tag": tag, "ending": ending})
            done.add(number)
            self.ended.append((worker, ending))
            if fails:
                self.excluded.add(worker)

    def pass_all(self, total):
        """So many gradients; then nothing is occupied."""

        async def main(ctx):
            dut = self.dut
            for name in "barrier", "broadcast", "workers":
                ctx.set(getattr(dut, name), getattr(self, name))
            for place in self.places:
                ctx.set(dut.worker.payload, place)
                ctx.set(dut.worker.valid, 1)
                await ctx.tick()
            ctx.set(dut.worker.valid, 0)
            ctx.set(dut.row_bytes, ROW_BYTES)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await self.give(ctx, total)
            while ctx.get(dut.occupied):
                await ctx.tick()
            await ctx.tick().repeat(40)
            assert ctx.get(dut.excluded) == sum(1 << worker for worker in self.excluded)

        self.run(main, self.complete)
        return self


@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
@pytest.mark.parametrize("rows", [1, 2, 16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [1, 3, CONFIG.queue_pairs])
def test_rows_go_to_their_workers_or_to_all_and_are_freed(workers, mode, rows, stall):
    bench = Rows(new_seed(), workers=workers, rows=rows, **MODES[mode], stall=stall)
    bench.pass_all(6 * workers)
    assert bench.posted() == list(bench.expected())
    rows = [said for _, said in bench.log["row"]]
    assert [said.address for said in rows] == [push["local"] for push in bench.given]
    assert {(said.words, said.memory_only) for said in rows} == {(3, int(mode != "barter"))}


@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
@pytest.mark.parametrize("mode", MODES)
def test_who_does_not_get_his_gets_no_more_and_the_others_go_on(mode, stall):
    bench = Rows(new_seed(), workers=3, rows=2, **MODES[mode], stall=stall, fails={1})
    bench.pass_all(24)
    assert bench.excluded == {1}
    whole, posted = list(bench.expected()), bench.posted()
    assert [push for push in posted if push[0] != 1] == [push for push in whole if push[0] != 1]
    assert 2 <= sum(push[0] == 1 for push in posted) < sum(push[0] == 1 for push in whole)


def test_a_push_every_5_cycles_and_of_a_round_as_well():
    free = Rows(0, workers=2, rows=16, barrier=False).pass_all(12)
    cycles = [cycle for cycle, _ in free.log["post"]]
    assert {b - a for a, b in pairwise(cycles)} == {5}
    whole = Rows(0, workers=2, rows=16, barrier=True).pass_all(2)
    first, second = (cycle for cycle, _ in whole.log["post"])
    assert second - first == 5
