"""Workers side by side in Amaranth's simulator; the network is an adder in Python."""

from __future__ import annotations

import itertools

import numpy as np

from fanin import fixed
from fanin.hdl.glm.node import make_worker
from fanin.hdl.glm.shapes import ModelPortSignature
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.glm.training import Bench, Job
from tests.support import simulate


def _settings(job: Job) -> dict[str, int]:
    shape = job.shape
    values = {
        "shape.chunks": shape.chunks,
        "shape.planes": shape.precision,
        "shape.mini_batch": shape.micro_batches,
        "shape.epoch": shape.micro_batches_per_epoch,
        "training.epochs": job.epochs,
        "training.loss": job.loss,
        "training.mantissa": job.learning_rate.mantissa,
        "training.shift": job.learning_rate.shift,
        "training.clamp_bits": fixed.clamp_bits(job.workers),
    }
    return {f"part[{w}].{name}": value for w in range(job.workers) for name, value in values.items()}


class Network:
    """Adds up the PAs of all workers and hands the sum to each, ``delay`` cycles later at the earliest."""

    def __init__(self, bench: Bench, *, delay: int, stall: float, seed: int):
        self.bench, self.delay = bench, delay
        self.stalls = Stalls(stall, seed)
        self.pas = [[] for _ in bench.part]  # values
        self.pa_cycles, self.fa_cycles = [], []  # of worker 0

    def _sum(self, operation: int) -> list[int]:
        values = zip(*(pas[operation] for pas in self.pas), strict=True)
        return [sum(lane) for lane in values]

    async def run(self, ctx):
        parts = self.bench.part
        ports = [p for part in parts for p in (part.pa.valid, part.pa.ready, part.pa.payload, part.fa.ready)]
        summed, ready_at = 0, []
        handed, offered = [0] * len(parts), [False] * len(parts)
        cycle = 0
        while True:
            for worker, part in enumerate(parts):
                ctx.set(part.pa.ready, not self.stalls.pauses(f"pa{worker}", Side.SINK, cycle))
                due = handed[worker] < summed and cycle >= ready_at[handed[worker]]
                pauses = self.stalls.pauses(f"fa{worker}", Side.SOURCE, cycle)
                if due and not offered[worker] and not pauses:
                    offered[worker] = True
                    ctx.set(part.fa.payload, self._sum(handed[worker]))
                ctx.set(part.fa.valid, offered[worker])
            _, _, *values = await ctx.tick().sample(*ports)
            for worker in range(len(parts)):
                pa_valid, pa_ready, pa, fa_ready = values[4 * worker : 4 * worker + 4]
                if pa_valid and pa_ready:
                    self.pas[worker].append(list(pa))
                    self.pa_cycles += [cycle] if worker == 0 else []
                if offered[worker] and fa_ready:
                    handed[worker] += 1
                    offered[worker] = False
                    self.fa_cycles += [cycle] if worker == 0 else []
            while all(len(pas) > summed for pas in self.pas):
                summed += 1
                ready_at.append(cycle + self.delay)
            cycle += 1


class Host:
    """Starts all workers, waits for the last, reads the models, ends the test."""

    def __init__(self, bench: Bench, job: Job):
        self.bench, self.job = bench, job
        self.models = []
        self.cycles = 0  # of worker 0
        self.counts = [dict.fromkeys(dict(part.counts.shape()), 0) for part in bench.part]

    async def _pulse(self, ctx, name):
        for part in self.bench.part:
            ctx.set(getattr(part, name), 1)
        await ctx.tick()
        for part in self.bench.part:
            ctx.set(getattr(part, name), 0)

    async def _model(self, ctx, part):
        shape = self.job.shape
        index = itertools.product(range(shape.node.engines), range(shape.chunks), range(shape.node.lanes))
        weights = [await self._weight(ctx, part, *where) for where in index]
        return np.reshape(weights, (shape.node.engines, shape.chunks, shape.node.lanes))

    async def _weight(self, ctx, part, engine, chunk, lane):
        ctx.set(part.engine, engine)
        ctx.set(part.host.chunk, chunk)
        ctx.set(part.host.lane, lane)
        ctx.set(part.host.read, 1)
        await ctx.tick()
        ctx.set(part.host.read, 0)
        await ctx.tick().repeat(ModelPortSignature.READ_LATENCY - 1)
        return ctx.get(part.host.read_data)

    async def count(self, ctx):
        ports = [part.counts for part in self.bench.part]
        async for _, _, *values in ctx.tick().sample(*ports):
            for counts, value in zip(self.counts, values, strict=True):
                for name in counts:
                    counts[name] += value[name]

    async def run(self, ctx):
        parts = self.bench.part
        await ctx.tick().repeat(4)  # the shape comes before the start
        await self._pulse(ctx, "start")
        while any(ctx.get(part.busy) for part in parts):
            assert all(ctx.get(part.running) == ctx.get(part.busy) for part in parts)
            self.cycles += ctx.get(parts[0].running)
            await ctx.tick()
        self.models = [await self._model(ctx, part) for part in parts]
        await self.bench.end(ctx)


def train(job: Job, *, stall: float = 0.3, memory_stall: float | None = None, delay: int = 5):
    """Train; the host, with the models, and the network."""
    bench = Bench(*(make_worker(job.node) for _ in range(job.workers)))
    network = Network(bench, delay=delay, stall=stall, seed=job.seed)
    host = Host(bench, job)
    drive = {}
    for w in range(job.workers):
        drive[f"part[{w}].labels"] = job.label_vectors(w) * job.epochs
        for e in range(job.node.engines):
            drive[f"part[{w}].samples[{e}]"] = job.words(w, e) * job.epochs
            if job.node.sparse:
                drive[f"part[{w}].entries[{e}]"] = job.entries(w, e) * job.epochs
    simulate(
        bench,
        drive=drive,
        collect={"done": 1},
        stall=dict.fromkeys(drive, stall if memory_stall is None else memory_stall),
        settings=_settings(job),
        processes=[network.run, host.run, host.count],
        seed=job.seed,
        limit=5_000,
    )
    return host, network
