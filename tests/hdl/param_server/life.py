"""The life of a parameter server, drawn from a seed: jobs, aborts, dead workers, and a host that errs."""

import random

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from fanin.hdl.param_server.server import ParamServer
from fanin.hdl.param_server.server_control import JobRequest, Refusal, ServerControl
from fanin.hdl.stream.connect import connect_typed
from tests.hdl.param_server.server_bench import ServerBench

SPACING = 6  # cycles of a register access, at least
_INSIDE = ("settings", "worker", "exclude", "start", "enable")  # members of the server that its control drives


class ControlledServer(wiring.Component):
    """A server with its control, as in its node: the host's side of the one, the other sides of the other."""

    def __init__(self, *, config, patience):
        self.config = config
        self.control = ServerControl(config=config)
        self.server = ParamServer(config=config, patience=patience)
        host = (
            "job",
            "request",
            "set_worker",
            "start",
            "run",
            "setting",
            "refused",
            "exclude",
            "readmit",
            "connected",
        )
        members = {name: self.control.signature.members[name] for name in host}
        super().__init__(
            members | {name: m for name, m in self.server.signature.members.items() if name not in _INSIDE}
        )

    @property
    def pushes(self):
        return self.server.pushes

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = control = self.control
        m.submodules.server = server = self.server
        for part in control, server:
            for name in set(part.signature.members) & set(self.signature.members):
                if name in (("busy",) if part is control else _INSIDE):
                    continue
                self._join(m, part, name)
        connect_typed(m, control.worker, server.worker)
        connect_typed(m, control.excludes, server.exclude)
        m.d.comb += [
            control.busy.eq(server.busy),
            server.settings.eq(control.settings),
            server.enable.eq(control.enable),
            server.start.eq(control.begin),
        ]
        return m

    def _join(self, m, part, name):
        member, inner, outer = part.signature.members[name], getattr(part, name), getattr(self, name)
        if member.is_port:
            m.d.comb += outer.eq(inner) if member.flow == wiring.Out else inner.eq(outer)
        elif member.flow == wiring.Out:
            connect_typed(m, inner, flipped(outer))
        else:
            connect_typed(m, flipped(outer), inner)


class LifeBench(ServerBench):
    """Runs ``jobs`` jobs of random shape on one server, and all that may happen between and during them."""

    def __init__(self, config, *, seed, jobs, largest=60, **options):
        self.draws = random.Random(seed)
        self.jobs, self.largest = jobs, largest
        self.seen = {}
        super().__init__(config, seed=seed, **options, **self._draw(config))

    def make(self, config, patience):
        return ControlledServer(config=config, patience=patience)

    def _draw(self, config):
        """A job; its worker that hears nothing, or whose last gradient does not come."""
        rng = self.draws
        mode = rng.choice([{}, {"barrier": True}, {"scan": True}, {"broadcast": True}])
        workers = rng.randint(1, config.queue_pairs)
        sizes = {
            "parameters": rng.randint(1, self.largest), "workers": workers, "rows": rng.randint(1, 4),
            "slots": 1 if "barrier" in mode else rng.randint(1, 3),
        }  # fmt: skip
        returns, deaf = rng.randint(1, 2), {"deaf": rng.randrange(workers)}
        gone = {} if "barrier" in mode else deaf
        absent = rng.choice(
            [{}, gone, deaf | {"returns": returns, "dies": rng.choice(["row", "answer", "host"])}]
        )
        return {"rounds": rng.randint(1, 3), "sizes": sizes, "base": 64 * rng.randint(1, 99), **mode, **absent}

    def live(self):
        async def main(ctx):
            for number in range(self.jobs):
                if number:
                    self._prepare(**self._draw(self.dut.config))
                await self.whole(ctx, last=number == self.jobs - 1)

        return self.simulate(main)

    def count_of(self, what):
        self.seen[what] = self.seen.get(what, 0) + 1

    # ---- what a host does ----

    async def write(self, ctx, name, value):
        ctx.set(getattr(self.dut, name), value)
        await ctx.tick().repeat(SPACING)

    async def pulse(self, ctx, *names):
        for name in names:
            ctx.set(getattr(self.dut, name), 1)
        await ctx.tick()
        for name in names:
            ctx.set(getattr(self.dut, name), 0)
        await ctx.tick().repeat(SPACING)
        return Refusal(ctx.get(self.dut.refused))

    async def set_worker(self, ctx, index):
        table = self.layout.slot(index % self.sizes.workers, 0).base
        await self.write(
            ctx, "request", {"index": index, "table": table, "remote": self.remotes[0], "rkey": self.keys[0]}
        )
        refused = await self.pulse(ctx, "set_worker")
        while ctx.get(self.dut.setting):
            await ctx.tick()
        await ctx.tick().repeat(SPACING)  # until the next access
        return refused

    async def set_job(self, ctx):
        await self.write(ctx, "job", self.settings)
        order = list(range(self.sizes.workers))
        self.draws.shuffle(order)
        for worker in order:
            assert await self.set_worker(ctx, worker) is Refusal.NONE

    async def whole(self, ctx, *, last):
        """A job: errors of the host, set-up, start; to its end, or until it is abandoned."""
        rng = self.draws
        while rng.random() < 0.5:
            await self.err(ctx)
        await self.set_job(ctx)
        refused = await self.pulse(ctx, "start")
        assert refused is Refusal.NONE, refused
        if rng.random() < 0.3:
            await self.write(ctx, "job", {name: rng.randrange(2) for name in JobRequest.as_shape().members})
        await self.write(ctx, "run", 1)
        for worker in self.workers:
            self.push_gradients(worker)
        abandoned = self.cycle + rng.randint(1, 1_500) if rng.random() < 0.4 and not last else self.limit
        while not self.finished and self.cycle < abandoned:
            if rng.random() < 0.003:
                await self.meddle(ctx)
            ctx.set(self.dut.run, rng.random() >= self.stall)
            await self.look_after(ctx)
            await ctx.tick()
            assert self.cycle < self.limit, f"{len(self.pushes)} pushes after {self.cycle} cycles"
        self.count_of("finished" if self.finished else "abandoned")
        await self.write(ctx, "run", 0)
        await self.rest(ctx)

    async def exclude(self, ctx, worker):
        """The command; before it one that is refused, as the job has no such worker."""
        self.count_of("excluded")
        for index, refused in (self.sizes.workers, Refusal.WORKER), (worker, Refusal.NONE):
            await self.write(ctx, "request", {"index": index, "table": 0, "remote": 0, "rkey": 0})
            assert await self.pulse(ctx, "exclude") is refused

    async def readmit(self, ctx, worker):
        """The command; before it one that is refused, as the worker's queue pair is not connected yet."""
        dut, mask = self.dut, (1 << self.dut.config.queue_pairs) - 1
        self.count_of("readmitted")
        place = {**self.place(worker), "table": self.draws.getrandbits(64)}
        await self.write(ctx, "request", place)
        await self.write(ctx, "connected", mask & ~(1 << worker))
        assert await self.pulse(ctx, "readmit") is Refusal.UNCONNECTED
        await self.write(ctx, "connected", mask)
        assert await self.pulse(ctx, "readmit") is Refusal.NONE
        if ctx.get(dut.setting):
            self.count_of("readmission under way")
            assert await self.pulse(ctx, "readmit") in (Refusal.BUSY, Refusal.PRESENT)
        while ctx.get(dut.setting):
            await ctx.tick()
        assert not ctx.get(dut.drained) >> worker & 1

    async def meddle(self, ctx):
        """Commands and other settings, while gradients are taken: refused, and not heeded."""
        self.count_of("meddled")
        await self.write(ctx, "run", 1)
        await self.write(ctx, "job", {**self.settings, "slots": self.draws.randrange(9), "base": 0})
        assert await self.pulse(ctx, self.draws.choice(["start", "set_worker"])) is Refusal.BUSY
        worker = self.draws.randrange(64)
        await self.write(ctx, "connected", 0)
        await self.write(ctx, "request", {"index": worker, "table": 0, "remote": 0, "rkey": 0})
        excluded = ctx.get(self.dut.excluded)
        refused = await self.pulse(ctx, "readmit")
        if worker >= self.dut.config.queue_pairs:
            assert refused is Refusal.WORKER
        elif not excluded >> worker & 1:
            assert refused is Refusal.PRESENT
        else:
            assert refused in (Refusal.DRAINING, Refusal.UNCONNECTED)

    async def err(self, ctx):
        """Something that the server refuses, and that leaves nothing."""
        rng, good = self.draws, self.settings
        wrong = rng.choice(
            [
                ({"workers": 0}, Refusal.SIZES),
                ({"slots": 0}, Refusal.SIZES),
                ({"rows": 0}, Refusal.SIZES),
                ({"workers": rng.randint(self.dut.config.queue_pairs + 1, 127)}, Refusal.SIZES),
                ({"rows": rng.randint(17, 31)}, Refusal.SIZES),
                ({"words": good["words"] + 1}, Refusal.SIZES),
                ({"base": good["base"] + rng.randint(1, 15)}, Refusal.PLACE),
                ({"base": good["base"] | 1 << rng.randint(self.dut.config.address_width, 63)}, Refusal.PLACE),
                ({}, Refusal.UNSET),
                (None, Refusal.WORKER),
            ]
        )
        changes, cause = wrong
        self.count_of(cause.name)
        if changes is None:
            await self.write(ctx, "job", good)
            number = rng.randint(self.dut.config.queue_pairs, 63)
            assert await self.set_worker(ctx, number) is Refusal.WORKER
            return
        await self.set_job(ctx)
        if cause is Refusal.UNSET:  # for another job
            await self.write(ctx, "job", {**good, "step": good["step"] ^ 1})
        await self.write(ctx, "job", {**good, **changes})
        assert await self.pulse(ctx, "start") is cause
        await self.write(ctx, "run", 1)  # nothing is taken
        await self.write(ctx, "run", 0)
