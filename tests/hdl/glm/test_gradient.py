# amaranth: UnusedElaboratable=no
"""Sums of a mini-batch's gradients: one lane, then all of them behind their replay, against NumPy."""

import random

import pytest

from fanin import fixed
from fanin.hdl.glm.gradient import GradientSums, SumLane, sum_shape
from tests.hdl.glm.engine_job import random_job
from tests.support import new_seed, simulate, slow

SETTLE = 4  # the shape
RECENT = 3  # updates that memory does not show yet


def _scale(rng):
    ends = [-(2**31), 2**31 - 1]
    return rng.choice([*ends, 0, -1, rng.randint(*ends)])


class _LanePlan:
    """What a lane gets in every cycle, and which sums it must show when; memory is a dict of chunks."""

    def __init__(self, *, banks, stored, rng):
        self.dut = SumLane(banks=banks)
        self.banks, self.rng = banks, rng
        self.sums, self.shown = dict(enumerate(stored)), {}  # per chunk: value; cycle of its last update
        self.cycles, self.expected = [], []
        self.bits = sum_shape(banks).width

    def _cycle(self, n):
        while n >= len(self.cycles):
            junk = [self.rng.getrandbits(32) - 2**31 for _ in range(3 * self.banks // 2)]
            self.cycles.append(
                {
                    "terms": [
                        dict(zip(("first", "second", "both"), junk[at : at + 3], strict=True))
                        for at in range(0, len(junk), 3)
                    ],
                    "bits": self.rng.getrandbits(self.banks),
                    "stored": self.rng.getrandbits(self.bits) - 2 ** (self.bits - 1),
                    "valid": 0,
                    "first": self.rng.getrandbits(1),
                    "fresh": self.rng.getrandbits(1),
                    "recent": self.rng.getrandbits(RECENT),
                }
            )
        return self.cycles[n]

    def word(self, at, chunk, terms, bits, *, first, fresh):
        """A plane whose bits come in cycle ``at``."""
        shown = at + self.dut.latency
        ago = shown - self.shown.get(chunk, -1000)
        self._cycle(shown)
        self.cycles[at] |= {"terms": terms, "bits": bits}
        self.cycles[shown - 2] |= {"valid": 1, "first": first, "fresh": fresh}
        for n in range(1, RECENT + 1):  # ``one_ago`` comes a cycle after the others
            cycle = self.cycles[shown - 1 if n == 1 else shown - 2]
            cycle["recent"] = cycle["recent"] & ~(1 << n - 1) | (ago == n) << n - 1
        if ago > RECENT and not fresh:
            self.cycles[shown - 2]["stored"] = self.sums[chunk]
        return shown

    def micro_batch(self, at, chunk, q, scales, planes, *, fresh, gaps):
        """All planes of a chunk; the cycle behind the last."""
        for j in range(1, planes + 1):
            while self.rng.random() < gaps:
                at += 1
            shifted = [scale >> j for scale in scales]
            terms = [
                {"first": a, "second": b, "both": a + b}
                for a, b in zip(shifted[::2], shifted[1::2], strict=True)
            ]
            bits = sum((x >> planes - j & 1) << b for b, x in enumerate(q))
            shown = self.word(at, chunk, terms, bits, first=j == 1, fresh=fresh)
            at += 1
        gradient = int(fixed.bit_serial(q, scales, planes).sum())
        self.sums[chunk] = gradient + (0 if fresh else self.sums[chunk])
        self.shown[chunk] = shown
        self.expected.append((shown, self.sums[chunk]))
        return at

    def check(self):
        """Every sum in its cycle."""
        dut, seen = self.dut, []

        async def process(ctx):
            for cycle in self.cycles:
                ctx.set(dut.terms, cycle["terms"])
                ctx.set(dut.bits, cycle["bits"])
                ctx.set(dut.stored, cycle["stored"])
                ctx.set(dut.control, {name: cycle[name] for name in ("valid", "first", "fresh", "recent")})
                seen.append(ctx.get(dut.sum))
                await ctx.tick()

        simulate(dut, processes=[process], idle=len(self.cycles))
        assert [(cycle, seen[cycle]) for cycle, _ in self.expected] == self.expected


@pytest.mark.parametrize(("chunks", "planes"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3), (2, 8)])
@pytest.mark.parametrize(("gaps", "banks"), [(0, 2), (0.3, 8), (0, 8), (0.3, 16)])
def test_a_lane_sums_up_however_recent_the_last_sum_is(chunks, planes, gaps, banks):
    rng = random.Random(new_seed())
    stored = [rng.randint(-(2**40), 2**40) for _ in range(chunks)]
    plan = _LanePlan(banks=banks, stored=stored, rng=rng)
    at, fresh = 0, False
    for _ in range(25):
        scales = [_scale(rng) for _ in range(banks)]
        for chunk in range(chunks):
            q = [rng.randrange(1 << planes) for _ in range(banks)]
            at = plan.micro_batch(at, chunk, q, scales, planes, fresh=fresh, gaps=gaps)
        fresh = rng.random() < 0.2
    plan.check()


@pytest.mark.parametrize("banks", [2, 8, 16])
@pytest.mark.parametrize("scale", [-(2**31), 2**31 - 1])
def test_sums_reach_both_ends_of_their_range(banks, scale):
    q, planes = [255] * banks, 8
    gradient = int(fixed.bit_serial(q, [scale] * banks, planes).sum())
    bits = sum_shape(banks).width
    end = -(2 ** (bits - 1)) if scale < 0 else 2 ** (bits - 1) - 1
    assert abs(gradient) * 2**13 <= abs(end)  # the longest mini-batch
    plan = _LanePlan(banks=banks, stored=[end - 2 * gradient], rng=random.Random(1))
    for n in range(2):
        plan.micro_batch(planes * n, 0, q, [scale] * banks, planes, fresh=False, gaps=0)
    assert plan.expected[-1][1] == end
    plan.check()


@pytest.mark.parametrize(("banks", "latency", "bits"), [(2, 3, 46), (8, 4, 48), (16, 5, 49)])
def test_a_lane_is_as_late_and_as_wide_as_it_says(banks, latency, bits):
    assert SumLane(banks=banks).latency == latency
    assert sum_shape(banks).width == bits


class _Sums:
    """``GradientSums`` through all epochs of a job; cycles of what happened, and the rows read."""

    def __init__(self, job, *, stall, seed, depth=None, aborted=0, read=True):
        self.job, self.stall, self.rng = job, stall, random.Random(seed)
        self.aborted, self.read = aborted, read
        self.dut = GradientSums(lanes=job.lanes, banks=job.banks, depth=depth or job.chunks)
        self.words = job.words()
        self.takes, self.firsts, self.lasts, self.scaled = [], [], [], []
        self.completes, self.busy, self.rows = [], [], []
        micros = len(job.micro_scales())
        pause = 20 + int(8 * stall) + job.chunks * (job.planes + 2)
        simulate(self.dut, settings=job.shape, processes=[self._process], seed=seed, idle=100 + micros * pause)

    def expected(self):
        """Rows of all mini-batches."""
        job, rows = self.job, []
        for scale in job.scales:
            for first in range(0, job.micro_batches, job.mini_batch):
                part = slice(first * job.banks, (first + job.mini_batch) * job.banks)
                products = fixed.bit_serial(job.features[part], scale[part][:, None], job.planes)
                rows.append(products.sum(axis=0).reshape(job.chunks, job.lanes).tolist())
        return rows

    async def _process(self, ctx):
        await ctx.tick().repeat(SETTLE)
        self.fetched = []  # the words of the last two cycles
        for count in (self.aborted, len(self.job.micro_scales())):
            ctx.set(self.dut.start, 1)
            await self._tick(ctx)
            ctx.set(self.dut.start, 0)
            for name in ("takes", "firsts", "lasts", "scaled", "completes", "busy", "rows"):
                getattr(self, name).clear()
            await self._epochs(ctx, count)

    async def _tick(self, ctx):
        """A cycle: a word two cycles after its ``take``, junk if there was none."""
        dut, cycle = self.dut, len(self.busy)
        word = self.fetched.pop(0) if len(self.fetched) == 2 else None
        ctx.set(dut.word, self.rng.getrandbits(len(dut.word)) if word is None else word)
        _, _, take, first, last, ready, busy, complete = await ctx.tick().sample(
            dut.take, dut.first, dut.last, dut.scale.ready, dut.busy, dut.complete
        )
        self.fetched.append(self.words[len(self.takes)] if take else None)
        self.busy.append(busy)
        for happened, cycles in (
            (take, self.takes),
            (first, self.firsts),
            (last, self.lasts),
            (complete, self.completes),
        ):
            if happened:
                cycles.append(cycle)
        return ready

    async def _epochs(self, ctx, count):
        job, dut = self.job, self.dut
        for n, scale in enumerate(job.micro_scales()[:count]):
            while self.rng.random() < self.stall:
                await self._tick(ctx)
            ctx.set(dut.scale.payload, scale)
            ctx.set(dut.scale.valid, 1)
            while not await self._tick(ctx):
                pass
            self.scaled.append(len(self.busy) - 1)
            ctx.set(dut.scale.valid, 0)
            ctx.set(dut.scale.payload, [_scale(self.rng) for _ in scale])
            micro = n % job.micro_batches + 1
            if self.read and (micro % job.mini_batch == 0 or micro == job.micro_batches):
                done = len(self.completes)
                while len(self.completes) == done:
                    await self._tick(ctx)
                await self._read(ctx)
        for _ in range(16 + job.chunks * job.planes):
            await self._tick(ctx)

    async def _read(self, ctx):
        """All rows, a row a cycle, in any order."""
        order = self.rng.sample(range(self.job.chunks), self.job.chunks)
        row = {}
        for n, chunk in enumerate([*order, None]):
            if n:
                row[order[n - 1]] = list(ctx.get(self.dut.row))
            ctx.set(self.dut.read, chunk is not None)
            if chunk is not None:
                ctx.set(self.dut.chunk, chunk)
                await self._tick(ctx)
        self.rows.append([row[chunk] for chunk in range(self.job.chunks)])

    def check(self):
        """The sums, if read, and what ``take``, ``first``, ``last``, ``complete`` and ``busy`` say."""
        job = self.job
        words, micros = job.chunks * job.planes, len(job.micro_scales())
        assert self.rows == (self.expected() if self.read else [])
        assert len(self.takes) == words * micros
        assert self.firsts == self.takes[::words] == self.scaled
        assert self.lasts == self.takes[words - 1 :: words]
        ends = [
            self.lasts[epoch * job.micro_batches + min(first + job.mini_batch, job.micro_batches) - 1]
            for epoch in range(job.epochs)
            for first in range(0, job.micro_batches, job.mini_batch)
        ]
        late = {2: 6, 8: 7, 16: 8}[job.banks]
        assert self.completes == [last + late for last in ends]
        assert all(self.busy[cycle] for take in self.takes for cycle in range(take, take + late - 1))
        for last, complete in zip(ends, self.completes, strict=True):
            assert all(self.busy[last : complete + 1])
            following = min((take for take in self.takes if take > last), default=len(self.busy))
            assert not any(self.busy[complete + 1 : following])


QUICK = [(1, 1, 0, 2), (3, 1, 0, 2), (1, 3, 0.4, 2), (3, 4, 0.4, 2), (5, 1, 0, 8)]
ALL = [
    (*size, *how)
    for size in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (1, 3), (3, 4)]
    for how in [(0, 2), (0.4, 2), (0, 8)]
]


@pytest.mark.parametrize(
    ("chunks", "planes", "stall", "banks"), [*QUICK, *slow(*(case for case in ALL if case not in QUICK))]
)
def test_rows_are_the_exact_sums_of_every_mini_batch(chunks, planes, stall, banks):
    seed = new_seed()
    job = random_job(
        random.Random(seed), chunks=chunks, planes=planes, banks=banks, mini_batch=3, micros=8, epochs=2
    )
    _Sums(job, stall=stall, seed=seed).check()


@pytest.mark.parametrize(
    ("lanes", "banks", "depth", "mini_batch"), [(2, 16, 4, 1), (4, 8, 7, 2), *slow((16, 2, 3, 20))]
)
def test_any_size_and_any_mini_batch(lanes, banks, depth, mini_batch):
    seed = new_seed()
    job = random_job(random.Random(seed), lanes=lanes, banks=banks, mini_batch=mini_batch, micros=5, epochs=2)
    _Sums(job, stall=0.2, seed=seed, depth=depth).check()


@pytest.mark.parametrize(("chunks", "planes"), [(1, 1), (2, 3)])
def test_a_word_a_cycle_and_complete_on_time_while_the_next_mini_batch_goes_on(chunks, planes):
    job = random_job(random.Random(1), chunks=chunks, planes=planes, mini_batch=4, micros=10, epochs=1)
    run = _Sums(job, stall=0, seed=1, read=False)
    run.check()
    assert run.takes == list(range(run.takes[0], run.takes[0] + 10 * chunks * planes))


@pytest.mark.parametrize("aborted", [2, 4, *slow(1, 5)])
def test_start_drops_a_mini_batch_that_was_not_complete(aborted):
    seed = new_seed()
    job = random_job(random.Random(seed), mini_batch=3, micros=7, epochs=1)
    run = _Sums(job, stall=0.2, seed=seed, aborted=aborted)
    run.check()


@pytest.mark.parametrize("component", [GradientSums, SumLane])
def test_bad_banks_are_named(component):
    with pytest.raises(ValueError, match="banks must be even and at least 2, not 5"):
        component(banks=5)
