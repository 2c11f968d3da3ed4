"""A ParamServer between a memory and a NIC that the test plays, beside the golden server and workers."""

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from fanin.hdl.bus.memory import ReadMemory, WriteMemory
from fanin.hdl.net.param_server.server import ParamServer, ServerEvents
from fanin.param_server import ParamServerConfig, ServerLayout, WorkerLayout
from fanin.rdma import Ending
from fanin.sim.golden.param_server import ParameterServer, WorkerEndpoint
from tests.hdl.net.rdma.payloads import bursts_of

KEY = 0x5000


class Bytes(dict):
    """What WriteMemory stores, in the bytes that the read ports see."""

    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def __setitem__(self, address, value):
        self.memory[address] = value


@dataclass
class Push:
    """A row that was posted: as it was told of, and the bytes that the NIC has sent of it."""

    index: int
    tag: int
    local: int
    remote: int
    length: int
    expected: bytes
    next: int = 0  # byte to be sent
    sent: bytearray = field(default_factory=bytearray)


class ServerBench:
    """Runs until every worker has had ``rounds`` of its gradients applied.

    ``sizes`` are those of ParamServerConfig; ``back``: the probability that the NIC sends from an earlier
    packet again; ``mtu`` its packets' bytes; ``deaf``: a worker whose pushes fail, from its second one on.
    """

    def __init__(self, config, *, seed, rounds, sizes, stall=0.0, latency=20, back=0.0, mtu=256, deaf=None,
                 patience=4096, limit=60_000, eager=False):  # fmt: skip
        self.rng = random.Random(seed)
        self.sizes = ParamServerConfig(width=config.width, **sizes)
        self.layout = ServerLayout(self.sizes, 0, base=0x1000)
        self.dut = ParamServer(config=config, patience=patience)
        self.rounds, self.back, self.mtu, self.deaf, self.limit = rounds, back, mtu, deaf, limit
        self.stall, self.eager = stall, eager
        values = np.random.default_rng(seed)
        initial = values.normal(size=self.sizes.parameters).astype(np.float32)
        self.gradients = values
        self.golden = ParameterServer(self.layout, rate=0.5, initial=initial)
        there = WorkerLayout(self.sizes)
        self.workers = [WorkerEndpoint(n, there, initial) for n in range(self.sizes.workers)]
        self.memory = bytearray(self.golden.memory)
        dut, step = self.dut, config.width // 8
        word = lambda at: int.from_bytes(self.memory[at : at + step], "little")  # noqa: E731
        options = {"latency": latency, "stall": stall}
        self.reads = {
            name: ReadMemory(getattr(dut, name), word, seed=seed + n, **options)
            for n, name in enumerate(("memory", "rows_read", "table", "scan"))
        }
        self.writes = WriteMemory(dut.rows_write, seed=seed, **options)
        self.writes.content = Bytes(self.memory)
        self.pushes = []  # all, in their order
        self._active = deque()
        self._asked = deque()  # pushes and bytes of the bursts under way
        self._completions = deque()
        self.events = []
        self.cycle = 0

    def push_gradients(self, worker):
        """As many as there is credit for."""
        while worker.version < self.rounds and worker.may_push and worker.number not in self.stopped:
            reading = worker.begin_read()
            w, others = worker.end_read(reading)
            (push,) = worker.push(self.gradients.normal(size=w.shape), others)
            there = self.layout.base + push.remote  # the golden worker's server begins at 0
            gradient = worker.memory[push.local : push.local + push.length]
            self.memory[there : there + push.length] = self.golden.memory[there : there + push.length] = (
                gradient
            )

    async def main(self, ctx):
        """Set up, start, and wait."""
        dut, sizes, layout = self.dut, self.sizes, self.layout
        row, slot = layout.row(0), layout.slot(0, 0)
        settings = {
            "workers": sizes.workers, "slots": sizes.slots, "rows": sizes.rows, "base": row.base,
            "words": sizes.words, "gradient_bytes": slot.others - slot.base, "row_bytes": row.size,
            "slot_bytes": slot.size, "step": int(self.golden.step.view(np.uint32)),
        }  # fmt: skip
        ctx.set(dut.settings, settings)
        await ctx.tick().repeat(4)
        for worker in range(sizes.workers):
            place = {"index": worker, "table": layout.slot(worker, 0).base, "remote": self.remote, "rkey": KEY}
            ctx.set(dut.worker.payload, place)
            ctx.set(dut.worker.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.worker.ready)
        ctx.set(dut.worker.valid, 0)
        await ctx.tick().repeat(8)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.enable, 1)
        for worker in self.workers:
            self.push_gradients(worker)
        while not self.finished:
            await ctx.tick()
            assert self.cycle < self.limit, f"{len(self.pushes)} pushes after {self.cycle} cycles"
        for _ in range(40 + (2 * self.dut.patience if self.deaf is not None else 0)):
            await ctx.tick()
        self.status = {
            name: ctx.get(getattr(dut, name)) for name in ("version", "gone", "staleness", "stalest")
        }
        ctx.set(dut.enable, 0)
        for _ in range(300):
            await ctx.tick()
        self.busy = ctx.get(dut.busy)

    @property
    def remote(self):
        return 0x10_0000

    @property
    def finished(self):
        alive = [worker for worker in self.workers if worker.number not in self.stopped]
        return all(worker.consumed >= self.rounds for worker in alive) and not self._completions

    async def count(self, ctx):
        """Cycles, and in which of them what happened."""
        names = list(ServerEvents.as_shape().members)
        async for _, _, events in ctx.tick().sample(self.dut.events):
            self.events.append({name for name in names if events[name]})
            self.cycle += 1

    async def posts(self, ctx):
        """Take what is posted."""
        post = self.dut.post
        while True:
            ctx.set(post.ready, self.rng.random() >= self.stall)
            _, _, valid, ready, said = await ctx.tick().sample(post.valid, post.ready, post.payload)
            if valid and ready:
                assert said.rkey == KEY
                assert not said.with_immediate
                push = self._expect(said)
                self.pushes.append(push)
                self._first = self._first or (push if push.index == self.deaf else None)
                self._active.append(push)

    def _expect(self, said):
        """The golden server does the same; posts come in the order of updates."""
        self.updates.append(self.golden.apply(said.index))
        push = self.golden.push(said.index)
        assert (said.local, said.remote, said.length) == (push.local, self.remote + push.remote, push.length)
        assert said.tag == self.sizes.row_of(self.golden.version)
        expected = bytes(self.golden.memory[push.local : push.local + push.length])
        return Push(said.index, said.tag, said.local, said.remote, said.length, expected)

    async def ask(self, ctx):
        """Packets of the pushes in turn; now and then some are sent again."""
        nic, rng = self.dut.nic, self.rng
        step = self.dut.config.width // 8
        while True:
            if not self._active or rng.random() < self.stall / 4:
                await ctx.tick()
                continue
            push = self._active[0]
            if self.deaf == push.index and push is not self._first and push.next >= push.length // 2:
                self._active.popleft()
                self.stopped.add(push.index)
                self._completions.append((push, Ending.RETRIES))
                continue
            if push.next and rng.random() < self.back:
                push.next = rng.randrange(0, push.next, self.mtu)
            size = min(self.mtu, push.length - push.next)
            for address, words in bursts_of(push.local + push.next, size, step):
                self._asked.append((push, address - push.local, words))
                ctx.set(nic.araddr, address)
                ctx.set(nic.arlen, words - 1)
                ctx.set(nic.arvalid, 1)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(nic.arready)
                ctx.set(nic.arvalid, 0)
            push.next += size
            if push.next == push.length:
                self._active.popleft()

    async def words(self, ctx):
        """What comes, in the order in which it was asked for."""
        nic, step = self.dut.nic, self.dut.config.width // 8
        ctx.set(nic.rready, 1)
        beat = 0
        async for _, _, valid, word, last in ctx.tick().sample(nic.rvalid, nic.rdata, nic.rlast):
            if not valid:
                continue
            push, at, count = self._asked[0]
            at += beat * step
            data = word.to_bytes(step, "little")
            assert at <= len(push.sent), "a gap"
            if at < len(push.sent):
                assert push.sent[at : at + step] == data, "sent again, and not the same"
            push.sent[at : at + step] = data
            beat += 1
            assert last == (beat == count)
            if last:
                self._asked.popleft()
                beat = 0
                if len(push.sent) == push.length and push not in self._done:
                    self._done.append(push)
                    self._arrive(push)

    def _arrive(self, push):
        worker = self.workers[push.index]
        at = push.remote - self.remote
        worker.memory[at : at + push.length] = push.sent
        self._completions.append((push, Ending.DONE))
        self.push_gradients(worker)

    async def complete(self, ctx):
        """Some time later."""
        said = self.dut.completion
        while True:
            await ctx.tick()
            waiting = [n for n, (p, _) in enumerate(self._completions) if p not in self._active]
            if waiting and self.rng.random() < 0.1:
                push, ending = self._completions[waiting[0]]
                del self._completions[waiting[0]]
                ctx.set(said.payload, {"index": push.index, "tag": push.tag, "ending": ending})
                ctx.set(said.valid, 1)
                _, _, ready = await ctx.tick().sample(said.ready)
                assert ready
                ctx.set(said.valid, 0)

    def run(self):
        """Until all is done; then compare row by row."""
        self._done, self._first, self.stopped, self.updates = [], None, set(), []
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(self.main)
        others = (self.count, self.posts, self.ask, self.words, self.complete, self.writes.process)
        for process in (*others, *(memory.process for memory in self.reads.values())):
            simulator.add_testbench(process, background=True)
        simulator.run()
        self.check()
        return self

    def check(self):
        """Every row that was sent, and those in memory, are what the golden server made of the gradients."""
        for push in self.pushes:
            assert push.sent == push.expected[: len(push.sent)]
            assert push in self._done or push.index in self.stopped
        size = self.sizes.rows * self.layout.row(0).size
        base = self.layout.base
        assert self.memory[base : base + size] == self.golden.memory[base : base + size]
        ages = [update.staleness for update in self.updates]
        assert self.status["version"] == len(ages)
        assert (self.status["staleness"], self.status["stalest"]) == (sum(ages), max(ages))
        assert self.status["gone"] == sum(1 << n for n in self.stopped)
        assert not self.busy
        assert set(self.golden.applied.values()) == {1}
