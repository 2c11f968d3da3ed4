# amaranth: UnusedElaboratable=no
"""A MAC between a line and a core, each clock of its own."""

import random
from collections import Counter

from amaranth import ClockDomain, Module
from amaranth.sim import Simulator

from fanin.hdl.net.ethernet.mac import EthernetMac
from fanin.sim.rtl.monitor import Monitored
from fanin.sim.rtl.stalls import Side, Stalls
from tests.hdl.net.ethernet.line import Symbol
from tests.hdl.stream.frames import beats, frames

LINE = 8_000  # ps, a cycle at 1 Gb/s


RESET_CYCLES = 15  # more than four of any other clock
#: A reset takes back what was offered.
_TORN = ("FrameCrossing.i", "FrameCrossing.o", "FrameStore.i", "FrameStore.o", "WordsToBytes.i")


class MacBench:
    """What goes in and comes out.

    ``sent`` frames go from the core, ``symbols`` come from the line; ``resets`` are of a domain, at some cycle
    of it each. A core's cycle takes ``core`` picoseconds; the transmit clock is ``ppm`` slower than the receive
    clock. It runs until all has come and gone, and ``idle`` cycles of the line more.
    """

    def __init__(
        self,
        sent=(),
        symbols=(),
        *,
        seed,
        core=10_000,
        ppm=0,
        stall=0.3,
        steps=None,
        idle=300,
        resets=(),
        **parameters,
    ):
        rng = random.Random(seed)
        self.dut = EthernetMac(**parameters)
        self.sent, self.symbols, self.steps, self.idle = sent, symbols, steps, idle
        self.stalls = Stalls(stall, rng.random())
        self.received, self.line, self.events = [], [], Counter()
        self.marks = {}  # when what happened first, in picoseconds
        self._open = []
        self._domains = {name: ClockDomain(name) for name in ("sync", "rx", "tx")}
        top = Module()
        top.domains += self._domains.values()
        top.submodules.dut = Monitored(self.dut, excused=_TORN if resets else ())
        self.simulator = Simulator(top)
        self._time, self._core = {}, core
        for domain, period in ("sync", core), ("rx", LINE), ("tx", round(LINE * (1 + ppm / 1e6))):
            phase = rng.randrange(period)
            self.simulator.add_clock(period * 1e-12, phase=phase * 1e-12, domain=domain)
            self.simulator.add_testbench(self._clock(domain, phase, period), background=True)
        for process in self._offer, self._feed:
            self.simulator.add_testbench(process)
        for domain, cycles in resets:
            self.simulator.add_testbench(self._reset(domain, cycles), background=True)
        for process in self._take, self._watch, self._listen:
            self.simulator.add_testbench(process, background=True)
        self.simulator.run()
        self.frames = frames(self._open)

    def _reset(self, domain, cycles):
        async def pulse(ctx):
            for _ in range(cycles):
                await ctx.tick(domain)
            ctx.set(self._domains[domain].rst, 1)
            for _ in range(RESET_CYCLES):
                await ctx.tick(domain)
            ctx.set(self._domains[domain].rst, 0)

        return pulse

    def _clock(self, domain, phase, period):
        """A testbench that keeps the time of the last edge."""

        async def keep(ctx):
            self._time[domain] = phase - period
            async for _ in ctx.tick(domain):
                self._time[domain] += period

        return keep

    async def _offer(self, ctx):
        self._cycle = 0
        for frame in self.sent:
            while ctx.get(self._domains["sync"].rst):
                await ctx.tick()
            for beat in beats([frame], self.dut.width, errors=None):
                if not await self._offer_beat(ctx, beat):
                    break  # the core is reset, and offers no rest
        for _ in range(self.idle):
            await ctx.tick("tx")
        while any(symbol.valid for symbol in self.line[-60:]):
            await ctx.tick("tx")

    async def _offer_beat(self, ctx, beat):
        """Whether it has been taken; not if there is a reset."""
        port = self.dut.tx
        while self.stalls.pauses("tx", Side.SOURCE, self._cycle):
            await ctx.tick()
            self._cycle += 1
        ctx.set(port.p, beat)
        ctx.set(port.valid, 1)
        ready = reset = False
        while not ready and not reset:
            *_, reset, ready = await ctx.tick().sample(self._domains["sync"].rst, port.ready)
            self._cycle += 1
        ctx.set(port.valid, 0)
        self.marks["offered"] = self._time["sync"] - self._core
        return not reset

    async def _feed(self, ctx):
        for symbol in self.symbols:
            ctx.set(self.dut.gmii_rx, symbol.fields)
            ctx.set(self.dut.gmii_rx_enable, 0)
            while self.steps and not next(self.steps):
                await ctx.tick("rx")
            ctx.set(self.dut.gmii_rx_enable, 1)
            if symbol.valid:
                self.marks["came"] = self._time["rx"]
            await ctx.tick("rx")
        ctx.set(self.dut.gmii_rx.valid, 0)
        for _ in range(self.idle):
            await ctx.tick("rx")

    async def _take(self, ctx):
        port, cycle = self.dut.rx, 0
        while True:
            ctx.set(port.ready, not self.stalls.pauses("rx", Side.SINK, cycle))
            _, reset, valid, ready, p = await ctx.tick().sample(port.valid, port.ready, port.p)
            if reset:  # the core is, too
                while self._open and not self._open[-1].last:
                    self._open.pop()
                continue
            assert valid or not self._open or self._open[-1].last, "a frame pauses inside"
            if valid:
                self.marks.setdefault("handed on", self._time["sync"] - self._core)
            if valid and ready:
                self._open.append(p)
            cycle += 1

    async def _watch(self, ctx):
        names = self.dut.events.shape().members
        while True:
            _, _, events = await ctx.tick().sample(self.dut.events)
            self.events.update({name: 1 for name in names if events[name]})

    async def _listen(self, ctx):
        enable = False
        while True:
            if enable:
                p = ctx.get(self.dut.gmii_tx)
                self.line.append(Symbol(p.data, bool(p.valid), bool(p.error)))
                if p.valid:
                    self.marks.setdefault("sent", self._time["tx"])
            enable = next(self.steps) if self.steps else True
            ctx.set(self.dut.gmii_tx_enable, enable)
            await ctx.tick("tx")
