# amaranth: UnusedElaboratable=no
"""RegisterFile against a model of its map: access kinds, errors, channel order, latency."""

import random
from functools import partial

import pytest
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from fanin.host.driver import AsyncRegisterDriver
from tests.support import new_seed

MAP = RegisterMap(
    (
        Register(
            "control",
            "pulse",
            "Starts things.",
            (
                Field("start", 1, "run"),
                Field("stop", 1, "halt"),
                Field("kick", 8, "wide"),
                Field("wipe", 1, "0"),
            ),
        ),
        Register(
            "status", "ro", "What goes on.", (Field("idle", 1, "nothing runs"), Field("state", 5, "where"))
        ),
        Register(
            "rate", "rw", "Learning rate.", (Field("mantissa", 16, "m"), Field("shift", 6, "s", reset=24))
        ),
        Register("address", "rw", "Where.", bits=40, count=3),
        Register("temperature", "ro", "A number.", count=2),
        Register("cycles", "counter", "Cycles.", bits=64),
        Register("drops", "counter", "Frames lost.", step=3),
        Register("lots", "counter", "Big steps.", bits=64, step=32, count=2),
        Register("model", "window", "The model, word by word."),
        Register("spare", "rw", "In another group of the read multiplexer.", count=20, reset=5),
    ),
    clear="wipe",
)


class Host:
    """An AXI4-Lite master inside the simulator, with random delays on every channel."""

    def __init__(self, ctx, axil, rng, *, patience=0.5):
        self.ctx, self.axil, self.rng, self.patience = ctx, axil, rng, patience

    async def pause(self):
        while self.rng.random() < self.patience:
            await self.ctx.tick()

    async def send(self, channels):
        """Offer each request channel in turn, or at once; ``channels`` maps a channel to its payload."""
        ctx, axil = self.ctx, self.axil
        waiting, offered = dict(channels), []
        while waiting or offered:
            for channel in list(waiting):
                if self.rng.random() >= self.patience:
                    for name, value in waiting.pop(channel).items():
                        ctx.set(getattr(axil, name), value)
                    ctx.set(getattr(axil, f"{channel}valid"), 1)
                    offered.append(channel)
            ready = {channel: ctx.get(getattr(axil, f"{channel}ready")) for channel in offered}
            await ctx.tick()
            for channel, taken in ready.items():
                if taken:
                    ctx.set(getattr(axil, f"{channel}valid"), 0)
                    offered.remove(channel)

    async def answer(self, channel, *names):
        ctx, axil = self.ctx, self.axil
        await self.pause()
        ctx.set(getattr(axil, f"{channel}ready"), 1)
        ports = [getattr(axil, name) for name in names]
        values = await ctx.tick().sample(*ports).until(getattr(axil, f"{channel}valid"))
        ctx.set(getattr(axil, f"{channel}ready"), 0)
        return list(values)

    async def write(self, address, data, strobes=0b1111):
        await self.send({"aw": {"awaddr": address}, "w": {"wdata": data, "wstrb": strobes}})
        return (await self.answer("b", "bresp"))[0]

    async def read(self, address):
        await self.send({"ar": {"araddr": address}})
        return await self.answer("r", "rdata", "rresp")

    def driver(self):
        async def read32(address):
            data, resp = await self.read(address)
            assert resp == Resp.OKAY
            return data

        async def write32(address, data):
            assert await self.write(address, data) == Resp.OKAY

        return AsyncRegisterDriver(MAP, read32, write32)


def run(body, *background, patience=0.5):
    """Run ``body(ctx, dut, host)`` on a fresh register file."""
    dut = RegisterFile(registers=MAP)
    rng = random.Random(new_seed())
    sim = Simulator(dut)
    sim.add_clock(4e-9)

    async def main(ctx):
        await body(ctx, dut, Host(ctx, dut.axil, rng, patience=patience))

    async def watchdog(ctx):
        for _ in range(20_000):
            await ctx.tick()
        raise AssertionError("the register file does not answer")

    sim.add_testbench(main)
    sim.add_testbench(watchdog, background=True)
    for process in background:
        sim.add_testbench(partial(process, dut=dut), background=True)
    sim.run()


def test_rw_registers_reset_hold_and_reach_the_hardware():
    async def body(ctx, dut, host):
        driver = host.driver()
        assert await driver.read("rate") == {"mantissa": 0, "shift": 24}
        await driver.write("rate", mantissa=0xBEEF, shift=33)
        values = [host.rng.randrange(1 << 40) for _ in range(3)]
        for index, value in enumerate(values):
            await driver.write("address", value, index=index)
        await driver.write("spare", 77, index=19)
        assert (ctx.get(dut.mantissa), ctx.get(dut.shift)) == (0xBEEF, 33)
        assert [ctx.get(port) for port in dut.address] == values
        assert [await driver.read("address", index=n) for n in range(3)] == values
        assert [await driver.read("spare", index=n) for n in (0, 18, 19)] == [5, 5, 77]

    run(body)


def test_byte_strobes_write_their_bytes_only():
    async def body(ctx, dut, host):
        offset, model = MAP.offset("spare"), 5
        for _ in range(40):
            data, strobes = host.rng.randrange(1 << 32), host.rng.randrange(16)
            assert await host.write(offset, data, strobes) == Resp.OKAY
            mask = sum(0xFF << 8 * n for n in range(4) if strobes >> n & 1)
            model = model & ~mask | data & mask
            assert ctx.get(dut.spare[0]) == model

    run(body)


def test_ro_registers_show_the_hardware():
    async def body(ctx, dut, host):
        driver = host.driver()
        ctx.set(dut.idle, 1)
        ctx.set(dut.state, 19)
        ctx.set(dut.temperature[1], 0x89ABCDEF)
        assert await driver.read("status") == {"idle": 1, "state": 19}
        assert await driver.read("temperature", index=1) == 0x89ABCDEF
        assert await driver.read("temperature", index=0) == 0

    run(body)


def test_a_pulse_lasts_one_cycle_and_only_its_bits_fire():
    seen = []

    async def watch(ctx, dut):
        async for _, _, *bits in ctx.tick().sample(dut.start, dut.stop, dut.kick, dut.wipe):
            if any(bits):
                seen.append(tuple(bits))

    async def body(ctx, dut, host):
        driver = host.driver()
        await driver.write("control", start=1)
        await driver.write("control", stop=1, kick=0xA5)
        await host.write(MAP.offset("control"), 0xFFFFFFFF, strobes=0b0010)
        await host.write(MAP.offset("control"), 0xFFFFFFFF, strobes=0)
        assert await driver.read("control") == {"start": 0, "stop": 0, "kick": 0, "wipe": 0}
        await ctx.tick().repeat(3)
        assert seen == [(1, 0, 0, 0), (0, 1, 0xA5, 0), (0, 0, 0b11 << 6, 1)]

    run(body, watch)


def test_counters_add_their_steps_and_clear():
    async def body(ctx, dut, host):
        driver = host.driver()
        for step in (1, 7, 0, 5):
            ctx.set(dut.drops, step)
            await ctx.tick()
        ctx.set(dut.drops, 0)
        assert await driver.read("drops") == 13
        await driver.write("control", wipe=1)
        await ctx.tick().repeat(2)
        assert await driver.read("drops") == 0

    run(body)


def test_a_64_bit_counter_is_never_torn():
    """It steps by almost 2^32, so that the high word changes in nearly every cycle."""
    step, samples, held = 0xFFFF_FFFD, [], []

    async def watch(ctx, dut):
        total = 0
        ctx.set(dut.lots[1], step)
        while True:
            await ctx.tick()
            total += step
            held.append(total)

    async def body(ctx, dut, host):
        driver = host.driver()
        for _ in range(60):
            samples.append(await driver.read("lots", index=1))
            await host.pause()

    run(body, watch)
    assert len(set(samples)) == 60
    assert set(samples) <= set(held)


def test_windows_wait_for_the_hardware_in_order():
    memory = {n: n * 3 for n in range(64)}

    async def hardware(ctx, dut):
        rng, address = random.Random(5), 0
        while True:
            ctx.set(dut.model.ready, 0)
            ctx.set(dut.model.read_data, 0xDEAD)
            _, _, read, write, data = await ctx.tick().sample(
                dut.model.read, dut.model.write, dut.model.write_data
            )
            if not (read or write):
                continue
            for _ in range(rng.randrange(4)):
                await ctx.tick()
            ctx.set(dut.model.ready, 1)
            if write:
                memory[address] = data
            ctx.set(dut.model.read_data, memory[address])
            await ctx.tick()
            address += 1

    async def body(ctx, dut, host):
        driver = host.driver()
        assert [await driver.read("model") for _ in range(5)] == [0, 3, 6, 9, 12]
        for value in (100, 200):
            await driver.write("model", value)
        assert await host.write(MAP.offset("model"), 1, strobes=0b0111) == Resp.SLVERR
        assert await driver.read("model") == 21
        assert (memory[5], memory[6]) == (100, 200)

    run(body, hardware)


def test_bad_accesses_answer_slverr_and_change_nothing():
    async def body(ctx, dut, host):
        spare = MAP.offset("spare")
        for address in (spare + 1, spare + 2, spare + 3, MAP.size, 0xFFC, MAP.offset("cycles") - 4):
            mapped = address % 4 == 0 and any(n * 4 == address for n, *_ in MAP.words())
            if not mapped:
                assert await host.read(address) == [0, Resp.SLVERR], hex(address)
                assert await host.write(address, 0xFFFF_FFFF) == Resp.SLVERR, hex(address)
        for name in ("status", "temperature", "drops"):
            assert await host.write(MAP.offset(name), 1) == Resp.SLVERR
        assert [ctx.get(port) for port in dut.spare] == [5] * 20
        assert await host.read(spare) == [5, Resp.OKAY]

    run(body)


@pytest.mark.parametrize("first", ["aw", "w"])
def test_write_address_and_data_may_come_in_either_order(first):
    async def body(ctx, dut, host):
        channels = {"aw": {"awaddr": MAP.offset("spare")}, "w": {"wdata": 99, "wstrb": 15}}
        await host.send({first: channels.pop(first)})
        await ctx.tick().repeat(20)
        assert ctx.get(dut.axil.bvalid) == 0
        assert ctx.get(dut.spare[0]) == 5
        assert await host.read(MAP.offset("spare")) == [5, Resp.OKAY]  # reads pass a half write
        await host.send(channels)
        assert await host.answer("b", "bresp") == [Resp.OKAY]
        assert ctx.get(dut.spare[0]) == 99

    run(body)


def test_latency_and_rate_are_as_documented():
    cycle, events = [0], []

    async def watch(ctx, dut):
        axil = dut.axil
        pairs = [
            (n, getattr(axil, f"{n}valid"), getattr(axil, f"{n}ready")) for n in ("aw", "w", "b", "ar", "r")
        ]
        async for _, _, *values in ctx.tick().sample(*(p for _, v, r in pairs for p in (v, r))):
            for (name, *_), valid, ready in zip(pairs, values[::2], values[1::2], strict=True):
                if valid and ready:
                    events.append((name, cycle[0]))
            cycle[0] += 1

    async def body(ctx, dut, host):
        axil = dut.axil
        for port in (axil.bready, axil.rready, axil.arvalid):
            ctx.set(port, 1)
        await ctx.tick().repeat(20)
        ctx.set(axil.arvalid, 0)
        await ctx.tick().repeat(10)
        reads = [(n, c) for n, c in events if n in ("ar", "r")]
        assert reads[:6] == [("ar", 0), ("r", 5), ("ar", 6), ("r", 11), ("ar", 12), ("r", 17)]
        events.clear()
        ctx.set(axil.wstrb, 15)
        ctx.set(axil.awaddr, MAP.offset("spare"))
        for port in (axil.awvalid, axil.wvalid):
            ctx.set(port, 1)
        await ctx.tick().repeat(20)
        start = events[0][1]
        writes = [(n, c - start) for n, c in events if n != "w"]
        assert writes[:6] == [("aw", 0), ("b", 5), ("aw", 6), ("b", 11), ("aw", 12), ("b", 17)]

    run(body, watch)


@pytest.mark.parametrize(
    ("registers", "message"),
    [
        ((Register("axil", "rw", "-"),), "must not have a field called axil"),
        ((Register("elaborate", "rw", "-"),), "must not have a field called elaborate"),
    ],
)
def test_reserved_names_are_refused(registers, message):
    with pytest.raises(ValueError, match=message):
        RegisterFile(registers=RegisterMap(registers))
