# amaranth: UnusedElaboratable=no
"""A board's registers: what it says of itself, addresses that can be changed, counters, uptime, LEDs."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.registers import (
    MAC_COUNTERS,
    RESPONDER_COUNTERS,
    VERSION,
    BoardRegisters,
    board_constants,
    board_registers,
)
from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.net.ethernet.rgmii import Speed
from fanin.host.driver import AsyncRegisterDriver, BaseDriver
from tests.hdl.bus.test_registers import Host
from tests.support import new_seed

IDENTITY = Identity(board=5, build=0xDEAD_BEEF, mac=0x02_00_00_00_12_34, ip=0x0A_00_00_07)
CLOCK = 320


def run(body):
    """Run ``body(ctx, dut, registers)`` on fresh registers."""
    dut = BoardRegisters(identity=IDENTITY, clock_hz=CLOCK)
    rng = random.Random(new_seed())
    sim = Simulator(dut)
    sim.add_clock(1 / CLOCK)

    async def main(ctx):
        host = Host(ctx, dut.axil, rng, patience=0.1)

        async def read32(address):
            data, resp = await host.read(address)
            assert resp == Resp.OKAY
            return data

        async def write32(address, data):
            assert await host.write(address, data) == Resp.OKAY

        await body(ctx, dut, AsyncRegisterDriver(board_registers(IDENTITY), read32, write32))

    sim.add_testbench(main)
    sim.run()


def test_a_board_says_what_it_is_to_its_host_and_to_anybody():
    async def body(ctx, dut, registers):
        driver = BaseDriver(registers.registers, board_constants(IDENTITY))
        driver.check_identity(await registers.run(driver.identify()))
        assert [ctx.get(word) for word in dut.about][:2] == [VERSION << 16 | 5, 0xDEAD_BEEF]

    run(body)


def test_addresses_are_those_of_the_build_until_the_host_writes_others():
    async def body(ctx, dut, registers):
        assert (ctx.get(dut.own_mac), ctx.get(dut.own_ip)) == (IDENTITY.mac, IDENTITY.ip)
        await registers.write("own_mac", 0x02_AA_BB_CC_DD_EE)
        await registers.write("own_ip", 0xC0A8_0001)
        assert (ctx.get(dut.own_mac), ctx.get(dut.own_ip)) == (0x02_AA_BB_CC_DD_EE, 0xC0A8_0001)
        assert await registers.read("own_mac") == 0x02_AA_BB_CC_DD_EE

    run(body)


def test_every_event_is_counted_by_its_own_counter():
    names = {f"mac_{n}": ("mac", n) for n in MAC_COUNTERS} | {
        f"control_{n}": ("control", n) for n in RESPONDER_COUNTERS
    }

    async def body(ctx, dut, registers):
        for times, (port, name) in enumerate(names.values(), 1):
            ctx.set(getattr(dut, port)[name], 1)
            await ctx.tick().repeat(times)
            ctx.set(getattr(dut, port)[name], 0)
        await ctx.tick().repeat(4)
        driver = BaseDriver(registers.registers, {})
        counted = driver.counters_of(await registers.run(driver.counters()))
        assert counted == {name: times for times, name in enumerate(names, 1)}
        await registers.write("control", clear_counters=1)
        assert set(driver.counters_of(await registers.run(driver.counters())).values()) == {0}

    run(body)


def test_the_state_is_in_its_register_in_hello_and_on_the_leds():
    async def body(ctx, dut, registers):
        async def state():
            found = await registers.read("state")
            assert registers.registers["state"].pack(found) == ctx.get(dut.about[3])
            return found

        quiet = dict.fromkeys(await state(), 0)
        assert await state() == quiet
        ctx.set(dut.link, {"up": 1, "speed": Speed.MBPS_1000, "full_duplex": 1})
        ctx.set(dut.running, 1)
        ctx.set(dut.holder, 0x0A00_0001)
        ctx.set(dut.mac.underrun, 1)
        await ctx.tick()
        ctx.set(dut.mac.underrun, 0)
        link = {"link_up": 1, "speed": 2, "full_duplex": 1}
        assert await state() == quiet | link | {"running": 1, "underran": 1, "fault": 1}
        assert ctx.get(dut.leds) == {"link": 1, "frame": 0, "running": 1, "fault": 1}
        assert await registers.read("holder") == 0x0A00_0001
        await registers.write("control", clear_counters=1)
        assert await state() == quiet | link | {"running": 1}
        ctx.set(dut.failed, 1)
        assert await state() == quiet | link | {"running": 1, "failed": 1, "fault": 1}

    run(body)


@pytest.mark.parametrize("event", ["received", "sent"])
@pytest.mark.parametrize("cycle", [1, CLOCK // 16 - 1], ids=["second cycle", "last cycle of a period"])
def test_the_frame_led_is_lit_for_a_sixteenth_of_a_second(event, cycle):
    async def body(ctx, dut, registers):
        await ctx.tick().repeat(cycle)
        ctx.set(dut.mac[event], 1)
        await ctx.tick()
        ctx.set(dut.mac[event], 0)
        lit = 0
        for _ in range(CLOCK):
            await ctx.tick()
            lit += ctx.get(dut.leds.frame)
        assert lit == CLOCK // 16

    run(body)


def test_uptime_counts_seconds():
    async def body(ctx, dut, registers):
        await ctx.tick().repeat(3 * CLOCK - 1)
        assert ctx.get(dut.about[2]) == 2
        await ctx.tick()
        assert ctx.get(dut.about[2]) == 3
        assert await registers.read("uptime") == 3

    run(body)


def test_a_clock_must_have_ticks_to_blink():
    with pytest.raises(ValueError, match="clock_hz must be at least 16, not 15"):
        BoardRegisters(identity=IDENTITY, clock_hz=15)
