"""A ParamServer between a memory and a NIC that the test plays, beside the golden server and workers."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from fanin.hdl.param_server import server as rtl
from fanin.hdl.param_server import update_control
from fanin.param_server.driver import lgvnum_of, vacated
from fanin.param_server.facts import VERSION_BYTES, ParamServerConfig, RowLayout, ServerLayout, WorkerLayout
from fanin.param_server.golden import ParameterServer, WorkerEndpoint
from fanin.rdma.facts import Ending
from fanin.sim.rtl.memory import ReadMemory, WriteMemory
from tests.hdl.rdma.payloads import bursts_of

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
    """A row that is pushed: what is posted of it, and the bytes that the NIC has sent."""

    index: int
    tag: int
    local: int
    remote: int
    length: int
    expected: bytes
    life: int  # replacements of its worker before it
    next: int = 0  # byte to be sent
    sent: bytearray = field(default_factory=bytearray)
    arrived: bool = False
    completed: bool = False


class ServerBench:
    """Runs a job until every worker has had ``rounds`` of its gradients applied, or there is no version left.

    ``sizes`` are those of ParamServerConfig; with ``barrier`` a round's last row goes to all, with
    ``broadcast`` every row; with ``scan`` only those behind scans are pushed; ``base`` is where the server's
    memory begins; ``short``: a worker whose last gradient does not come; ``deaf``: a worker whose pushes fail,
    from its second one on; it is replaced ``returns`` times, and the replacement's pushes fail alike, except
    the last one's. ``dies`` says how: a "row" is lost, or only its "answer", or the "host" excludes the worker.

    Of all jobs, ``back`` is the probability that the NIC sends an earlier packet again, of any row that is not
    complete; ``late``: that it does so of any row that is, as its queue still has the packet, and a row may be
    complete while it is read; ``pause``: that it pauses; ``mtu`` its packets' bytes; ``errors``: that a
    gradient's word is read with an error.
    """

    def __init__(self, config, *, seed, stall=0.0, latency=20, back=0.0, late=0.0, pause=0.0, mtu=256,
                 patience=4096, errors=0.0, limit=20_000, **job):  # fmt: skip
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dut = self.make(config, patience)
        self.stall, self.back, self.late, self.pause, self.mtu = stall, back, late, pause, mtu
        self.errors, self.limit = errors, limit
        options = {"latency": latency, "stall": stall}
        self.reads = {
            name: ReadMemory(getattr(self.dut, name), self._word, seed=seed + n, **options)
            for n, name in enumerate(("memory", "rows_read", "table", "scan"))
        }
        self.writes = WriteMemory(self.dut.rows_write, seed=seed, **options)
        self._prepare(**job)

    def make(self, config, patience):
        """What is tested: a server, or one behind something that has its members, too."""
        return rtl.ParamServer(config=config, patience=patience)

    def _prepare(self, *, rounds, sizes, barrier=False, broadcast=False, scan=False, base=0x1000, short=None,
                 deaf=None, returns=0, dies="row"):  # fmt: skip
        """A job in a memory of its own; nothing has happened."""
        step = self.dut.config.width // 8
        self.sizes = ParamServerConfig(width=8 * step, **sizes)
        self.layout = ServerLayout(self.sizes, 0, base=base)
        self.barrier, self.broadcast, self.scan, self.deaf = barrier, broadcast, scan, deaf
        self.returns, self.dies = returns, dies
        self.remotes = dict.fromkeys(range(self.sizes.workers), 0x10_0000)
        self.keys = dict.fromkeys(range(self.sizes.workers), KEY)
        self.lives = Counter()  # replacements, as of the last row that was ordered
        self.last = [rounds - (n == short) for n in range(self.sizes.workers)]  # version of each worker
        initial = self.numbers.normal(size=self.sizes.parameters).astype(np.float32)
        self.golden = ParameterServer(self.layout, rate=0.5, initial=initial, broadcast=broadcast)
        there = WorkerLayout(self.sizes)
        self.workers = [WorkerEndpoint(n, there, initial) for n in range(self.sizes.workers)]
        self.memory = bytearray(self.golden.memory)
        self.writes.content = Bytes(self.memory)
        table = range(self.layout.slot(0, 0).base, len(self.memory), step)
        self.reads["table"].errors = {at for at in table if self.rng.random() < self.errors}
        self.zeros = Counter()  # version of the gradient of zeros before a replacement's
        self.updates = []
        self.stopped = set()  # workers to whom a push has failed
        self.returning = set()  # replacements that are connected, and that the server still leaves out
        self.pushes = []  # all, in their order
        self.late_streamed = 0  # words of the stream that went to a push that was complete
        self._round = []  # workers whose gradients have been applied since the last round's end
        self.scans = []  # those of each scan
        self._due = deque()  # and those that are not posted
        self._active = deque()
        self._asked = deque()  # pushes and bytes of the bursts under way
        self._ended = deque()  # pushes and how they end, of which the server is not told yet
        self._deaf_has_one, self._deaf_rows = False, 0  # it has got a row; how many
        self.events = []
        self.cycle = 0

    def _word(self, at):
        """What memory has; the job owns it from its first row on."""
        assert self.layout.base <= at < len(self.memory), f"{at:#x} is not the job's"
        return int.from_bytes(self.memory[at : at + self.dut.config.width // 8], "little")

    def push_gradients(self, worker):
        """As many as there is credit for."""
        number = worker.number
        while worker.version < self.last[number] and worker.may_push and number not in self.stopped:
            reading = worker.begin_read()
            w, others = worker.end_read(reading)
            (push,) = worker.push(self.numbers.normal(size=w.shape), others)
            there = self.layout.base + push.remote  # the golden worker's server begins at 0
            gradient = worker.memory[push.local : push.local + push.length]
            self.memory[there : there + push.length] = self.golden.memory[there : there + push.length] = (
                gradient
            )

    async def set_up(self, ctx):
        """Set up and start; then gradients are taken."""
        dut, sizes = self.dut, self.sizes
        ctx.set(dut.settings, self.settings)
        await ctx.tick().repeat(4)
        for worker in range(sizes.workers):
            await self._give_worker(ctx, self.place(worker) | {"readmits": 0})
        await ctx.tick().repeat(8)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.enable, 1)

    async def job(self, ctx):
        """Set up, start, and wait; when the host may begin anew, look at what has become of it."""
        dut = self.dut
        await self.set_up(ctx)
        for worker in self.workers:
            self.push_gradients(worker)
        while not self.finished:
            ctx.set(dut.enable, self.rng.random() >= self.stall)
            await self.look_after(ctx)
            await ctx.tick()
            assert self.cycle < self.limit, f"{len(self.pushes)} pushes after {self.cycle} cycles"
        ctx.set(dut.enable, 1)
        await ctx.tick().repeat(40)  # nothing is taken twice
        ctx.set(dut.enable, 0)
        await self.rest(ctx)

    def place(self, worker):
        """A worker, as the server gets it."""
        table = self.layout.slot(worker, 0).base
        return {"index": worker, "table": table, "remote": self.remotes[worker], "rkey": self.keys[worker]}

    async def _give_worker(self, ctx, place):
        worker = self.dut.worker
        ctx.set(worker.payload, place)
        ctx.set(worker.valid, 1)
        ready = False
        while not ready:
            _, _, ready = await ctx.tick().sample(worker.ready)
        ctx.set(worker.valid, 0)

    async def exclude(self, ctx, worker):
        """The command, without a control in front of the server."""
        ctx.set(self.dut.exclude.payload, worker)
        ctx.set(self.dut.exclude.valid, 1)
        await ctx.tick()
        ctx.set(self.dut.exclude.valid, 0)

    async def readmit(self, ctx, worker):
        """The command, without a control in front of the server."""
        await self._give_worker(ctx, self.place(worker) | {"table": 0, "readmits": 1})

    async def look_after(self, ctx):
        """Replace a worker that is excluded, at some moment after it is drained, as a host does."""
        dut, worker = self.dut, self.deaf
        if self.dies == "host" and worker is not None and worker not in self.stopped:
            if self.returns and self.golden.version and self.rng.random() < 0.01:
                self.stopped.add(worker)
                await self.exclude(ctx, worker)
            return
        if not (self.returns and worker in self.stopped and self.rng.random() < 0.02):
            return
        if not ctx.get(dut.drained) >> worker & 1:
            return
        version = ctx.get(dut.version)
        lgvnum = lgvnum_of(self.memory, self.layout, worker, version=version)
        if lgvnum is None:  # that row is not in memory yet
            return
        base, size = self.layout.region(worker)
        self.memory[base : base + size] = vacated(self.layout, worker, lgvnum=lgvnum, version=version)
        self.zeros[worker] = self.golden.readmit(worker, version)
        assert self.memory[base : base + size] == self.golden.memory[base : base + size]
        self.remotes[worker] += 0x10_0000
        self.keys[worker] += 1
        self.workers[worker] = WorkerEndpoint(
            worker, WorkerLayout(self.sizes), np.zeros(self.sizes.parameters, np.float32), joins=True
        )
        self.returns -= 1
        if not self.returns:
            self.deaf = None
        self._deaf_has_one, self._deaf_rows = False, 0
        self.stopped.remove(worker)  # it is connected
        self.returning.add(worker)
        await self.readmit(ctx, worker)
        while ctx.get(dut.excluded) >> worker & 1:
            await ctx.tick()

    async def rest(self, ctx):
        """Wait until the server does nothing any more, and look at what it has done."""
        dut = self.dut
        await ctx.tick().repeat(4)
        while ctx.get(dut.busy) or self._asked:
            await ctx.tick()
            assert self.cycle < self.limit, f"busy, or {len(self._asked)} reads are not answered"
        names = ("version", "excluded", "staleness", "stalest", "exhausted")
        self.status = {name: ctx.get(getattr(dut, name)) for name in names}
        self.check()

    @property
    def settings(self):
        """Of the job, as the server gets them."""
        sizes, row, slot = self.sizes, self.layout.row(0), self.layout.slot(0, 0)
        return {
            "workers": sizes.workers, "slots": sizes.slots, "rows": sizes.rows, "base": row.base,
            "words": sizes.words, "gradient_bytes": slot.others - slot.base, "row_bytes": row.size,
            "slot_bytes": slot.size, "step": int(self.golden.step.view(np.uint32)),
            "barrier": int(self.barrier), "broadcast": int(self.broadcast), "scan": int(self.scan),
        }  # fmt: skip

    @property
    def finished(self):
        if self.returns and self.stopped:
            return False
        applied = zip(self.golden.row.lgvnum, self.last, strict=True)
        alive = (pair for n, pair in enumerate(applied) if n not in self.stopped)
        exhausted = self.golden.version == update_control.MAX_VERSION
        done = exhausted or all(lgvnum >= last for lgvnum, last in alive)
        return done and not self._due and all(push.completed for push in self.pushes)

    async def count(self, ctx):
        """Cycles, and in which of them what happened; rows are made in the order of these pushes."""
        names = list(rtl.ServerEvents.as_shape().members)
        pushes = self.dut.pushes
        push = pushes.push
        sampled = ctx.tick().sample(self.dut.events, push.valid & push.ready, push.payload, pushes.skipped)
        async for _, _, events, begins, said, skipped in sampled:
            self.events.append({name for name in names if events[name]})
            self.cycle += 1
            if begins and said.is_new:
                self.updates.append(self.golden.apply(said.index))
                self._round.append(said.index)
            if begins and said.readmits:
                self.lives[said.index] += 1
                self.returning.discard(said.index)
            elif begins:
                self._end_round(said)
            if skipped:
                push = self._due.popleft()
                left_out = self.stopped | self.returning
                assert push.index in left_out or push.life < self.lives[push.index]

    def _end_round(self, said):
        """The golden server pushes the row, if it is to be pushed."""
        ends = not said.is_new if self.scan else not self.barrier or len(self._round) == self.sizes.workers
        assert said.ends_round == ends
        if not ends:
            return
        self.scans.append(self._round)
        for receiver in range(self.sizes.workers) if self.broadcast else self._round:
            push = self.golden.push(receiver)
            expected = bytes(self.golden.memory[push.local : push.local + push.length])
            tag = self.sizes.row_of(self.golden.version)
            remote, life = self.remotes[receiver] + push.remote, self.lives[receiver]
            self._due.append(Push(receiver, tag, push.local, remote, push.length, expected, life))
        self._round = []

    async def posts(self, ctx):
        """Take what is posted."""
        post = self.dut.post
        while True:
            ctx.set(post.ready, self.rng.random() >= self.stall)
            _, _, valid, ready, said = await ctx.tick().sample(post.valid, post.ready, post.payload)
            if valid and ready:
                push = self._due.popleft()
                names = ("index", "tag", "local", "remote", "length")
                assert all(said[name] == getattr(push, name) for name in names)
                assert (said.rkey, said.with_immediate) == (self.keys[push.index], 0)
                assert push.life == self.lives[push.index]
                assert push.index not in self.returning
                self.pushes.append(push)
                self._active.append(push)

    async def ask(self, ctx):
        """Packets of the pushes in turn; now and then one is sent again."""
        rng = self.rng
        while True:
            if not self._active or rng.random() < self.stall / 4:
                await ctx.tick()
                continue
            if rng.random() < self.pause:
                await ctx.tick().repeat(rng.choice([20, 200]))
            await self._again(ctx, self.late, complete=True)
            push = self._active[0]
            if push.index in self.stopped or self._fails(push):
                self._active.popleft()
                ending = Ending.FLUSHED if push.index in self.stopped else Ending.RETRIES
                self.stopped.add(push.index)
                self._ended.append((push, ending))
                continue
            await self._packet(ctx, push, push.next)
            push.next = min(push.next + self.mtu, push.length)
            if push.next == push.length:
                self._active.popleft()
            await self._again(ctx, self.back, complete=False)

    async def _again(self, ctx, odds, *, complete):
        """Packets that have been sent, of pushes that are or are not complete."""
        sent = lambda push: push.next and push.completed == complete  # noqa: E731
        while (pushes := list(filter(sent, self.pushes))) and self.rng.random() < odds:
            push = self.rng.choice(pushes)
            await self._packet(ctx, push, self.rng.randrange(0, push.next, self.mtu))

    def _fails(self, push):
        """The first push to the deaf worker arrives; the second one fails half-way, or at its only packet."""
        if push.index != self.deaf:
            return False
        if not self._deaf_has_one:
            self._deaf_has_one = push.next + self.mtu >= push.length
            return False
        return self.dies == "row" and 2 * push.next >= push.length - self.mtu

    async def _packet(self, ctx, push, start):
        """Ask for its bursts."""
        nic, step = self.dut.nic, self.dut.config.width // 8
        for address, words in bursts_of(push.local + start, min(self.mtu, push.length - start), step):
            self._asked.append((push, address - push.local, words))
            ctx.set(nic.araddr, address)
            ctx.set(nic.arlen, words - 1)
            ctx.set(nic.arvalid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(nic.arready)
            ctx.set(nic.arvalid, 0)

    async def words(self, ctx):
        """What comes, in the order in which it was asked for."""
        nic = self.dut.nic
        ctx.set(nic.rready, 1)
        beat = from_memory = 0
        ports = (nic.rvalid, nic.rdata, nic.rlast, self.dut.memory.rvalid)
        async for _, _, valid, word, last, reads in ctx.tick().sample(*ports):
            came_from_memory, from_memory = from_memory, reads  # it was on that port a cycle ago
            if not valid:
                continue
            push, at, count = self._asked[0]
            if push.completed:
                self.late_streamed += not came_from_memory
            else:
                self._take(push, at + beat * self.dut.config.width // 8, word)
            beat += 1
            assert last == (beat == count)
            if last:
                self._asked.popleft()
                beat = 0
                if len(push.sent) == push.length and not push.arrived:
                    self._arrive(push)

    def _take(self, push, at, word):
        data = word.to_bytes(self.dut.config.width // 8, "little")
        assert at <= len(push.sent), "a gap"
        if at < len(push.sent):
            assert push.sent[at : at + len(data)] == data, "sent again, and not the same"
        push.sent[at : at + len(data)] = data

    def _arrive(self, push):
        worker, number = self.workers[push.index], push.index
        push.arrived = True
        if number in self.stopped:  # as seen of its queue pair: in order
            self._ended.append((push, Ending.FLUSHED))
            return
        at = push.remote - self.remotes[number]
        worker.memory[at : at + push.length] = push.sent
        self._deaf_rows += number == self.deaf
        fails = self.dies == "answer" and number == self.deaf and self._deaf_rows > 1
        self._ended.append((push, Ending.RETRIES if fails else Ending.DONE))
        worker.join(self.zeros[number])
        self.push_gradients(worker)
        if fails:
            self.stopped.add(number)

    async def complete(self, ctx):
        """Some time later, when nothing of it is read any more, unless that may be late."""
        said = self.dut.completion
        while True:
            await ctx.tick()
            under_way = set() if self.late else {id(push) for push, *_ in self._asked}
            ready = [n for n, (push, _) in enumerate(self._ended) if id(push) not in under_way]
            if ready and self.rng.random() < 0.1:
                push, ending = self._ended[ready[0]]
                del self._ended[ready[0]]
                push.completed = True
                ctx.set(said.payload, {"index": push.index, "tag": push.tag, "ending": ending})
                ctx.set(said.valid, 1)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(said.ready)
                ctx.set(said.valid, 0)

    def run(self, *jobs):
        """The job, and further ones on the same server, each begun when it is not busy any more."""

        async def main(ctx):
            await self.job(ctx)
            for job in jobs:
                self._prepare(**job)
                await self.job(ctx)

        return self.simulate(main)

    def simulate(self, main, *monitors):
        """Run a testbench, and monitors, beside the memories and the NIC."""
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        others = (self.count, self.posts, self.ask, self.words, self.complete, self.writes.process)
        for process in (*others, *monitors, *(memory.process for memory in self.reads.values())):
            simulator.add_testbench(process, background=True)
        simulator.run()
        return self

    def check(self):
        """Every row that was sent, and those in memory, are what the golden server made of the gradients."""
        for push in self.pushes:
            assert push.arrived or push.index in self.stopped or push.life < self.lives[push.index]
            assert self._meant(push.sent) == self._meant(push.expected[: len(push.sent)])
        for number in range(self.sizes.rows):
            row = self.layout.row(number)
            place = slice(row.base, row.base + row.size)
            assert self._meant(self.memory[place]) == self._meant(self.golden.memory[place]), f"row {number}"
        ages = [update.staleness for update in self.updates]
        assert self.status["version"] == len(ages)
        assert (self.status["staleness"], self.status["stalest"]) == (sum(ages), max(ages, default=0))
        assert self.status["excluded"] == sum(1 << n for n in self.stopped)
        assert set(self.golden.applied.values()) <= {1}

    def _meant(self, row):
        """A row, with zeros between the last worker's LGVnum and the version behind it: they mean nothing."""
        layout = RowLayout(self.sizes, 0, 0)
        first, end = layout.lgvnum + VERSION_BYTES * self.sizes.workers, layout.tail_version
        return row[:first] + bytes(len(row[first:end])) + row[end:]
