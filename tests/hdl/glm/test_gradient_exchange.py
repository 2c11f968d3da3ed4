# amaranth: UnusedElaboratable=no
"""Gradients on their way out and totals on their way in, each alone; then both in their engine."""

import random

import numpy as np
import pytest

from fanin import fixed
from fanin.hdl.glm.data_parallel import GradientEngine
from fanin.hdl.glm.gradient import sum_shape
from fanin.hdl.glm.gradient_exchange import GradientSender, TotalsUpdate
from fanin.hdl.glm.shapes import ModelPortSignature
from tests.hdl.glm.activations import Queued
from tests.hdl.glm.engine_job import random_job, value_of
from tests.support import new_seed, simulate, slow

BOTTOM, TOP = -(2**31), 2**31 - 1
SIZES = [  # lanes, group, chunks, depth
    (2, 2, 1, 1),
    (2, 2, 3, 4),
    (8, 2, 3, 3),
    (8, 8, 2, 8),
    (16, 8, 1, 4),
    (64, 8, 3, 5),
    (64, 32, 2, 2),
]
BANKS = 4  # which change the width of a gradient alone
SETTLE = 4  # the shape


def _value(rng, bits):
    ends = [-(1 << bits - 1), (1 << bits - 1) - 1]
    return rng.choice([*ends, 0, -1, rng.randint(*ends)])


def _row(rng, lanes, bits=32):
    return [_value(rng, bits) for _ in range(lanes)]


def _send(*, lanes, group, chunks, depth, stall, seed, mini_batches=3):
    """Serve rows one cycle after each ``read``; what was sent and when, and the cycles of ``complete``."""
    rng = random.Random(seed)
    dut = GradientSender(lanes=lanes, banks=BANKS, depth=depth, gradient_values=group)
    bits = sum_shape(BANKS).width
    rows = [[_row(rng, lanes, bits) for _ in range(chunks)] for _ in range(mini_batches)]
    completes, reads = [], []

    async def process(ctx):
        async def tick():
            nonlocal cycle, asked
            ctx.set(dut.row, _row(rng, lanes, bits) if asked is None else rows[len(completes) - 1][asked])
            o = dut.o
            _, _, read, chunk, *taken = await ctx.tick().sample(
                dut.read, dut.chunk, o.valid, o.ready, o.payload.last
            )
            asked = chunk if read else None
            if read:
                reads.append(chunk)
            cycle += 1
            return all(taken)

        cycle, asked = 0, None
        for _ in range(SETTLE):
            await tick()
        for _ in rows:
            for _ in range(rng.choice([0, 1, 5])):
                await tick()
            ctx.set(dut.complete, 1)
            completes.append(cycle)
            await tick()
            ctx.set(dut.complete, 0)
            while not await tick():
                pass
        while True:
            await tick()

    groups = chunks * lanes // group
    log = simulate(
        dut,
        collect={"o": groups * mini_batches},
        stall=stall,
        settings={"shape.chunks": chunks},
        processes=[process],
        seed=seed,
        idle=30,
    )["o"]
    assert reads == list(range(chunks)) * mini_batches
    values = [value for _, sent in log for value in sent["values"]]
    assert values == [value for sums in rows for row in sums for value in row]
    assert [sent["last"] for _, sent in log] == [n == groups - 1 for n in range(groups)] * mini_batches
    return [cycle for cycle, _ in log], completes


@pytest.mark.parametrize(("lanes", "group", "chunks", "depth"), SIZES)
@pytest.mark.parametrize("stall", [0, 0.4])
def test_every_gradient_leaves_once_and_in_order(lanes, group, chunks, depth, stall):
    _send(lanes=lanes, group=group, chunks=chunks, depth=depth, stall=stall, seed=new_seed())


@pytest.mark.parametrize(("lanes", "group", "chunks", "depth"), SIZES)
def test_the_first_group_comes_after_3_cycles_and_a_chunk_takes_2_more_than_its_groups(
    lanes, group, chunks, depth
):
    sent, completes = _send(lanes=lanes, group=group, chunks=chunks, depth=depth, stall=0, seed=1)
    groups = lanes // group
    assert sent == [
        complete + 3 + chunk * (groups + 2) + number
        for complete in completes
        for chunk in range(chunks)
        for number in range(groups)
    ]


class _Totals:
    """``TotalsUpdate`` and a memory of weights; ``plan`` says cycle by cycle what comes."""

    def __init__(self, *, lanes, group, chunks, depth, rng):
        self.dut = TotalsUpdate(lanes=lanes, gradient_values=group, depth=depth)
        self.lanes, self.group, self.chunks, self.rng = lanes, group, chunks, rng
        self.rows = [_row(rng, lanes) for _ in range(chunks)]
        self.plan = [{} for _ in range(SETTLE)]

    def idle(self, cycles):
        self.plan += [{} for _ in range(cycles)]

    def mini_batch(self, totals, *, gaps):
        """``complete``, then rows of ``totals``, chunk by chunk."""
        self.idle(4)  # what was written is in memory
        self.plan.append({"complete": 1})
        self.idle(self.rng.randrange(4))
        groups = [row[at : at + self.group] for row in totals for at in range(0, self.lanes, self.group)]
        for group in groups:
            while self.rng.random() < gaps:
                self.idle(1)
            self.plan.append({"totals": group})

    def run(self):
        """Outputs of every cycle."""
        dut, rows, seen = self.dut, [list(row) for row in self.rows], []

        async def process(ctx):
            asked, announced, written = None, None, None
            for inputs in self.plan:
                totals = inputs.get("totals")
                ctx.set(dut.complete, inputs.get("complete", 0))
                ctx.set(dut.totals.valid, totals is not None)
                ctx.set(dut.totals.payload, totals or _row(self.rng, self.group))
                ctx.set(dut.override, "override" in inputs)
                ctx.set(dut.override_value, inputs.get("override", _value(self.rng, 32)))
                ctx.set(dut.stored, rows[asked] if asked is not None else _row(self.rng, self.lanes))
                weights, update, asked = list(ctx.get(dut.weights)), ctx.get(dut.update), ctx.get(dut.chunk)
                seen.append(
                    {
                        "weights": weights,
                        "update": (update.chunk, update.both) if update.valid else None,
                        "last": ctx.get(dut.last),
                        "busy": ctx.get(dut.busy),
                        "ready": ctx.get(dut.totals.ready),
                    }
                )
                written = announced
                announced = update.chunk if update.valid else None
                if written is not None:
                    rows[written] = weights
                await ctx.tick()

        settings = {"shape.chunks": self.chunks}
        simulate(dut, settings=settings, processes=[process], idle=len(self.plan))
        assert len(seen) == len(self.plan)
        return seen


@pytest.mark.parametrize(("lanes", "group", "chunks", "depth"), SIZES)
@pytest.mark.parametrize("gaps", [0, 0.4])
def test_totals_are_taken_from_the_weights_chunk_by_chunk(lanes, group, chunks, depth, gaps):
    rng = random.Random(new_seed())
    job = _Totals(lanes=lanes, group=group, chunks=chunks, depth=depth, rng=rng)
    totals = [[_row(rng, lanes) for _ in range(chunks)] for _ in range(3)]
    for one in totals:
        job.mini_batch(one, gaps=gaps)
    job.idle(6)
    seen = job.run()

    groups, weights = lanes // group, np.array(job.rows)
    given = [n for n, inputs in enumerate(job.plan) if "totals" in inputs]
    updates = {cycle: now["update"] for cycle, now in enumerate(seen) if now["update"]}
    expected = {cycle + 1: (n % chunks, 1) for n, cycle in enumerate(given[groups - 1 :: groups])}
    assert updates == expected
    for cycle, (chunk, _) in updates.items():
        row = totals[sum(c < cycle for c in updates) // chunks][chunk]
        weights[chunk] = fixed.saturate32(weights[chunk] - np.array(row))
        assert seen[cycle + 1]["weights"] == weights[chunk].tolist()

    completes = [n for n, inputs in enumerate(job.plan) if "complete" in inputs]
    lasts = given[groups * chunks - 1 :: groups * chunks]
    busy = {n for first, last in zip(completes, lasts, strict=True) for n in range(first + 1, last + 2)}
    assert {n for n, now in enumerate(seen) if now["busy"]} == busy
    for n, now in enumerate(seen[SETTLE:], SETTLE):
        following = min((cycle for cycle in given if cycle >= n), default=given[0])
        assert now["last"] == (following in lasts)
        assert now["ready"]


def test_weights_saturate_at_both_ends():
    cases = [  # weight, total, result
        (TOP, -1, TOP),
        (TOP, BOTTOM, TOP),
        (TOP, 0, TOP),
        (TOP - 1, -1, TOP),
        (0, BOTTOM, TOP),
        (-1, BOTTOM, TOP),
        (-2, BOTTOM, TOP - 1),
        (BOTTOM, 1, BOTTOM),
        (BOTTOM, TOP, BOTTOM),
        (BOTTOM, 0, BOTTOM),
        (BOTTOM + 1, 1, BOTTOM),
        (-1, TOP, BOTTOM),
        (-2, TOP, BOTTOM),
        (0, TOP, BOTTOM + 1),
        (BOTTOM, BOTTOM, 0),
        (TOP, TOP, 0),
    ]
    weights, totals, results = (list(column) for column in zip(*cases, strict=True))
    job = _Totals(lanes=16, group=8, chunks=1, depth=1, rng=random.Random(1))
    job.rows = [weights]
    job.mini_batch([totals], gaps=0)
    job.idle(3)
    assert job.run()[-2]["weights"] == results


def test_overridden_weights_come_a_cycle_later_and_announce_nothing():
    rng = random.Random(new_seed())
    job = _Totals(lanes=8, group=2, chunks=2, depth=2, rng=rng)
    values = [_value(rng, 32) for _ in range(10)]
    job.plan += [{"override": value} for value in values]
    job.mini_batch([[TOP] * 8, [TOP] * 8], gaps=0)
    job.rows[1] = [-5] * 8
    job.idle(3)
    seen = job.run()
    overridden = seen[SETTLE + 1 : SETTLE + 11]
    assert [now["weights"] for now in overridden] == [[value] * 8 for value in values]
    assert not any(now["update"] or now["busy"] for now in overridden)
    assert seen[-2]["weights"] == [BOTTOM] * 8


@pytest.mark.parametrize("component", [GradientSender, TotalsUpdate])
def test_lanes_must_be_whole_groups(component):
    with pytest.raises(ValueError, match="lanes must be a multiple of gradient_values, 6, not 8"):
        component(lanes=8, gradient_values=6)


class _Exchange:
    """A training of ``GradientEngine``; other workers' gradients are random."""

    def __init__(self, job, *, stall, gaps, seed, group=None):
        self.job, self.gaps, self.rng = job, gaps, random.Random(seed)
        self.group = group or job.banks
        words = job.chunks * job.planes
        engine = GradientEngine(
            lanes=job.lanes,
            banks=job.banks,
            depth=job.chunks,
            fifo_depth=words * job.mini_batch,
            l2=job.decay is not None,
            gradient_values=self.group,
        )
        self.dut = Queued(engine)
        self.scales, self.totals, self.busy = [], [], []  # cycles, cycles, per cycle
        self.model = []
        self._expect()
        micros = len(job.micro_scales())
        self.log = simulate(
            self.dut,
            drive={"samples": job.words()},
            collect={"pa": micros, "gradients": len(self.groups)},
            stall=stall,
            settings=job.shape,
            processes=[self._conduct],
            seed=seed,
            idle=60 + len(self.weights) + self.per_mini_batch * (gaps + 1),
        )

    def _expect(self):
        """PAs, groups of gradients and of totals, how many of these a mini-batch has, the model at the end."""
        job, weights = self.job, self.job.weights.astype(np.int64)
        self.pas, self.groups, self.given = [], [], []
        for scale in job.scales:
            for first in range(0, job.micro_batches, job.mini_batch):
                rows = slice(first * job.banks, (first + job.mini_batch) * job.banks)
                q = job.features[rows]
                products = fixed.bit_serial(q, weights, job.planes).sum(axis=1)
                self.pas += products.reshape(-1, job.banks).tolist()
                gradient = fixed.bit_serial(q, scale[rows][:, None], job.planes).sum(axis=0)
                self.groups += gradient.reshape(-1, self.group).tolist()
                others = [_value(self.rng, 33) for _ in weights]
                total = fixed.saturate32(gradient + np.array(others))
                self.given += total.reshape(-1, self.group).tolist()
                weights = fixed.saturate32(weights - job.lost(weights) - total)
        self.weights = weights.tolist()
        self.per_mini_batch = len(weights) // self.group

    async def _conduct(self, ctx):
        host = self.dut.host

        async def access(index, **request):
            ctx.set(host.chunk, index // self.job.lanes)
            ctx.set(host.lane, index % self.job.lanes)
            for name, value in request.items():
                ctx.set(getattr(host, name), value)
            _, _, busy = await ctx.tick().sample(self.dut.busy)
            self.busy.append(busy)

        for index, weight in enumerate(self.job.weights):
            await access(index, write=1, write_data=int(weight))
        ctx.set(host.write, 0)
        ctx.set(self.dut.start, 1)
        await access(0)
        ctx.set(self.dut.start, 0)
        await self._serve(ctx)
        while ctx.get(self.dut.busy):
            await access(0)
        latency = ModelPortSignature.READ_LATENCY
        for index in reversed(range(-latency, len(self.weights))):
            if index < len(self.weights) - latency:
                self.model.insert(0, ctx.get(host.read_data))
            await access(max(index, 0), read=index >= 0)

    async def _serve(self, ctx):
        """Give each scale once its PA is out, totals once all gradients of their mini-batch are."""
        dut, scales = self.dut, self.job.micro_scales()
        pas = gradients = pause = 0
        while len(self.totals) < len(self.given):
            at = len(self.totals)
            ctx.set(dut.scale.valid, len(self.scales) < pas)
            ctx.set(dut.scale.payload, scales[min(len(self.scales), len(scales) - 1)])
            due = gradients >= (at // self.per_mini_batch + 1) * self.per_mini_batch
            go = due and pause == 0
            ctx.set(dut.totals.valid, go)
            ctx.set(dut.totals.payload, self.given[at] if go else _row(self.rng, self.group))
            last = (at + 1) % self.per_mini_batch == 0
            _, _, busy, scale, pa, gradient, totals_last = await ctx.tick().sample(
                dut.busy,
                dut.scale.valid & dut.scale.ready,
                dut.pa.valid & dut.pa.ready,
                dut.gradients.valid & dut.gradients.ready,
                dut.totals_last,
            )
            assert totals_last == last or not pas
            cycle = len(self.busy)
            self.busy.append(busy)
            if scale:
                self.scales.append(cycle)
            if go:
                self.totals.append(cycle)
                pause = self.rng.randint(0, self.gaps)
            elif due:
                pause -= 1
            pas += pa
            gradients += gradient
        ctx.set(dut.totals.valid, 0)

    def check(self):
        """All values; ``busy`` from each scale to the last of its mini-batch's totals."""
        groups = [group for _, group in self.log["gradients"]]
        assert [[value_of(x) for x in pa] for _, pa in self.log["pa"]] == self.pas
        assert [list(group["values"]) for group in groups] == self.groups
        lasts = [(n + 1) % self.per_mini_batch == 0 for n in range(len(groups))]
        assert [group["last"] for group in groups] == lasts
        assert self.model == self.weights
        for mini, last in enumerate(self.totals[self.per_mini_batch - 1 :: self.per_mini_batch]):
            first = self.scales[mini * self.job.mini_batch]
            assert all(self.busy[first : last + 1])


def _job(rng, **size):
    return random_job(rng, **{"mini_batch": 2, "micros": 4, "epochs": 2} | size)


@pytest.mark.parametrize(
    ("lanes", "banks", "group", "chunks", "planes", "stall", "gaps"),
    [
        (2, 2, 2, 1, 1, 0, 0),
        (8, 2, 4, 3, 2, 0.3, 3),
        *slow(
            (2, 2, 2, 1, 1, 0.3, 3),
            (8, 2, 2, 3, 2, 0, 0),
            (8, 8, 8, 2, 3, 0, 0),
            (8, 8, 8, 2, 3, 0.3, 3),
            (32, 8, 32, 2, 3, 0.3, 3),
        ),
    ],
)
@pytest.mark.parametrize("l2", [False, True])
def test_an_engine_trains_with_the_totals_it_gets(lanes, banks, group, chunks, planes, stall, gaps, l2):
    seed = new_seed()
    rng = random.Random(seed)
    job = _job(rng, lanes=lanes, banks=banks, chunks=chunks, planes=planes)
    if l2:
        job.decay = fixed.Decay(rng.randint(1, fixed.MAX_DECAY), rng.randrange(lanes * chunks))
    _Exchange(job, stall=stall, gaps=gaps, seed=seed, group=group).check()


@pytest.mark.parametrize(
    ("lanes", "banks", "chunks", "planes"), [(8, 2, 3, 1), *slow((8, 8, 1, 1), (16, 8, 2, 2))]
)
def test_gradients_leave_as_early_as_the_engine_says(lanes, banks, chunks, planes):
    job = _job(random.Random(2), lanes=lanes, banks=banks, chunks=chunks, planes=planes, epochs=1)
    run = _Exchange(job, stall=0, gaps=0, seed=2)
    run.check()
    sent = [cycle for cycle, _ in run.log["gradients"]]
    expected = []
    for scale in run.scales[1::2]:
        take = scale + chunks * planes - 1  # the mini-batch's last one
        complete = take + {2: 6, 8: 7}[banks]
        starts = [complete + 3 + chunk * (lanes // banks + 2) for chunk in range(chunks)]
        expected += [start + group for start in starts for group in range(lanes // banks)]
    assert sent == expected


@pytest.mark.parametrize(("lanes", "banks", "planes"), [(8, 2, 3), *slow((8, 8, 1), (8, 4, 2))])
@pytest.mark.parametrize(("gaps", "decay"), [(6, None), (6, fixed.Decay(3)), *slow((0, None))])
def test_forward_follows_the_totals_chunk_by_chunk(lanes, banks, planes, gaps, decay):
    job = _job(random.Random(3), lanes=lanes, banks=banks, chunks=3, planes=planes, micros=6, epochs=1)
    job.decay = decay
    run = _Exchange(job, stall=0, gaps=gaps, seed=3)
    run.check()
    firsts = [cycle for cycle, _ in run.log["samples"]][::planes]  # of each micro-batch's chunks
    lasts = run.totals[lanes // banks - 1 :: lanes // banks]
    for mini in (1, 2):
        accepted = firsts[6 * mini : 6 * mini + 3]
        readable = [last + (5 if decay else 3) for last in lasts[3 * mini - 3 : 3 * mini]]
        before = [0, *(cycle + planes for cycle in accepted)]
        assert accepted == [max(both) for both in zip(readable, before[:3], strict=True)]
