"""A run of one engine and what NumPy says it must give; scales are given, so that no loss is involved."""

import random
from dataclasses import dataclass, field

import numpy as np

from fanin import fixed
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.shapes import ModelPortSignature
from tests.hdl.glm.activations import Queued
from tests.support import simulate

INT32 = (-(2**31), 2**31 - 1)


@dataclass
class Job:
    """Quantised features, initial weights, and the scale of every sample of every epoch."""

    features: np.ndarray  # (samples, chunks * lanes)
    weights: np.ndarray  # (chunks * lanes,)
    scales: np.ndarray  # (epochs, samples)
    lanes: int
    banks: int
    planes: int
    mini_batch: int  # micro-batches
    decay: fixed.Decay | None = None  # None: of an engine without L2 regularisation

    @property
    def chunks(self):
        return self.features.shape[1] // self.lanes

    @property
    def epochs(self):
        return len(self.scales)

    @property
    def micro_batches(self):
        return len(self.features) // self.banks

    @property
    def shape(self):
        return {
            "shape.chunks": self.chunks,
            "shape.planes": self.planes,
            "shape.mini_batch": self.mini_batch,
            "shape.epoch": self.micro_batches,
        } | self._decay_settings()

    def _decay_settings(self):
        if self.decay is None:
            return {}
        shift, spared = self.decay
        chunk, lane = divmod(spared or 0, self.lanes)
        fields = {"shift": shift, "spared": spared is not None, "chunk": chunk, "lane": lane}
        return {f"decay.{name}": int(value) for name, value in fields.items()}

    def lost(self, weights):
        """What a mini-batch's decay takes from the weights."""
        shift, spared = self.decay or fixed.NO_DECAY
        lost = fixed.decay(weights, shift)
        if spared is not None:
            lost[spared] = 0
        return lost

    def words(self):
        """All epochs' words: micro-batch, chunk, plane; bit lanes·b + k."""
        grid = self.features.reshape(self.micro_batches, self.banks, self.chunks, self.lanes)
        result = []
        for micro in grid:
            for chunk in range(self.chunks):
                for j in range(1, self.planes + 1):
                    plane = micro[:, chunk] >> (self.planes - j) & 1
                    result.append(sum(int(bit) << n for n, bit in enumerate(plane.flat)))
        return result * self.epochs

    def streams(self):
        """Contents of the engine's input streams."""
        return {"samples": self.words()}

    def engine(self, depth, fifo_depth):
        """An engine for the job."""
        size = {"lanes": self.lanes, "banks": self.banks, "depth": depth, "fifo_depth": fifo_depth}
        return Engine(**size, l2=self.decay is not None)

    def micro_scales(self):
        return [[int(x) for x in row] for row in self.scales.reshape(-1, self.banks)]

    def expected(self):
        """PAs of all micro-batches, and the model at the end."""
        current = architectural = self.weights.astype(np.int64)
        pas = []
        for epoch in self.scales:
            for n in range(self.micro_batches):
                rows = slice(n * self.banks, (n + 1) * self.banks)
                q, scale = self.features[rows], epoch[rows]
                products = fixed.bit_serial(q, architectural, self.planes)
                pas.append([int(x) for x in products.sum(axis=1)])
                gradient = fixed.bit_serial(q, scale[:, None], self.planes).sum(axis=0)
                if n % self.mini_batch == 0:
                    gradient += self.lost(current)
                current = fixed.saturate32(current - gradient)
                if (n + 1) % self.mini_batch == 0 or n + 1 == self.micro_batches:
                    architectural = current
        return pas, [int(x) for x in architectural]


def random_job(rng, *, lanes=4, banks=2, planes=3, chunks=2, mini_batch=2, micros=5, epochs=2, large=True):
    """A job of random numbers; with ``large`` weights and scales reach the ends of int32."""
    generator = np.random.default_rng(rng.getrandbits(32))
    bits = 31 if large else 24

    def numbers(*size):
        values = generator.integers(-(2**bits), 2**bits, size)
        extreme = generator.choice([-(2**bits), 2**bits - 1, 0, -1], size)
        return np.where(generator.random(size) < 0.3, extreme, values)

    return Job(
        features=generator.integers(0, 2**planes, (micros * banks, chunks * lanes)),
        weights=numbers(chunks * lanes),
        scales=numbers(epochs, micros * banks),
        lanes=lanes,
        banks=banks,
        planes=planes,
        mini_batch=mini_batch,
    )


@dataclass
class Result:
    """What came out, and when."""

    pas: list = field(default_factory=list)
    model: list = field(default_factory=list)
    word_cycles: list = field(default_factory=list)
    entry_cycles: list = field(default_factory=list)  # of a sparse engine
    pa_cycles: list = field(default_factory=list)
    scale_cycles: list = field(default_factory=list)
    events: list = field(default_factory=list)  # per cycle, from the first


def value_of(split):
    return split.high * 2**24 + split.low


def run(job, *, stall=0.3, depth=None, fifo_depth=None, seed, scale_delay=0):
    """Write the model, start, train, read the model; a scale waits for its PA and ``scale_delay`` cycles."""
    engine = job.engine(depth or job.chunks, fifo_depth or 4 * job.chunks * job.planes)
    dut = Queued(engine)
    result = Result()
    own = random.Random(seed)
    pause = stall.get("scale", 0) if isinstance(stall, dict) else stall
    scales = job.micro_scales()

    async def access(ctx, index, **request):
        ctx.set(dut.host.chunk, index // job.lanes)
        ctx.set(dut.host.lane, index % job.lanes)
        for name, value in request.items():
            ctx.set(getattr(dut.host, name), value)
        await ctx.tick()

    async def conduct(ctx):
        for index, weight in enumerate(job.weights):
            await access(ctx, index, write=1, write_data=int(weight))
        ctx.set(dut.host.write, 0)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        await serve(ctx, cycle=len(job.weights) + 1)
        await ctx.tick().until(~dut.busy)
        for index in range(len(job.weights)):
            await access(ctx, index, read=1)
            ctx.set(dut.host.read, 0)
            await ctx.tick().repeat(ModelPortSignature.READ_LATENCY - 1)
            result.model.append(ctx.get(dut.host.read_data))

    async def serve(ctx, cycle):
        """Give each scale once its PA is out."""
        due = []
        while len(result.scale_cycles) < len(scales):
            sent = len(result.scale_cycles)
            waiting = ctx.get(dut.scale.valid)
            if not waiting and len(due) > sent and due[sent] <= cycle and own.random() >= pause:
                ctx.set(dut.scale.payload, scales[sent])
                ctx.set(dut.scale.valid, 1)
            _, _, valid, ready, pa, pa_ready = await ctx.tick().sample(
                dut.scale.valid, dut.scale.ready, dut.pa.valid, dut.pa.ready
            )
            if pa and pa_ready:
                due.append(cycle + 1 + scale_delay)
            if valid and ready:
                result.scale_cycles.append(cycle)
                ctx.set(dut.scale.valid, 0)
            cycle += 1

    async def watch_events(ctx):
        async for _, _, events in ctx.tick().sample(dut.events):
            result.events.append(events)

    micros = len(scales)
    log = simulate(
        dut,
        drive=job.streams(),
        collect={"pa": micros},
        stall=stall,
        settings=job.shape,
        processes=[conduct, watch_events],
        seed=seed,
        idle=100 + scale_delay + 2 * engine.fifo_depth + 5 * len(job.weights),
    )
    assert len(result.scale_cycles) == micros
    assert len(result.model) == len(job.weights)
    result.word_cycles = [cycle for cycle, _ in log["samples"]]
    result.entry_cycles = [cycle for cycle, _ in log.get("entries", ())]
    result.pa_cycles = [cycle - Queued.LATENCY for cycle, _ in log["pa"]]
    result.pas = [[value_of(split) for split in pa] for _, pa in log["pa"]]
    return result
