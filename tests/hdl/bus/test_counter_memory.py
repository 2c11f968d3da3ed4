# amaranth: UnusedElaboratable=no
"""Counters in a memory: what a host reads is all that has happened, and of one moment."""

import random

import pytest
from amaranth.sim import Simulator

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.bus.counter_memory import CounterMemory
from fanin.hdl.bus.register_map import Field, Register, RegisterMap
from fanin.hdl.bus.registers import RegisterFile
from tests.hdl.bus.test_registers import Host
from tests.support import new_seed

WIDTHS = (1, 3, 32, 4, 8)
NAMES = tuple(f"count{n}" for n in range(len(WIDTHS)))
MAP = RegisterMap(
    (
        Register("control", "pulse", "Commands.", (Field("clear", 1, "zero"),)),
        Register("spare", "rw", "Something else.", reset=5),
        *(Register(n, "counter", "Events.", bits=64, step=w) for n, w in zip(NAMES, WIDTHS, strict=True)),
    ),
    clear="clear",
)
WHOLE = 32  # bits of a word


def run(body, *, idle=0.3):
    """``body(host, happened)`` while random steps come; ``happened()`` is what each counter has to show."""
    dut = RegisterFile(registers=MAP, counters_in_memory=True)
    rng = random.Random(new_seed())
    totals, quiet = [0] * len(WIDTHS), []

    async def count(ctx):
        ports = [getattr(dut, name) for name in NAMES]
        while True:
            steps = [
                0 if quiet or rng.random() < idle else rng.choice((rng.getrandbits(w), (1 << w) - 1))
                for w in WIDTHS
            ]
            for port, step in zip(ports, steps, strict=True):
                ctx.set(port, step)
            _, _, clear = await ctx.tick().sample(dut.clear)
            for n, step in enumerate(steps):
                totals[n] = 0 if clear else totals[n] + step

    async def main(ctx):
        await body(Host(ctx, dut.axil, rng, patience=0.2), totals, quiet)

    async def watchdog(ctx):
        for _ in range(20_000):
            await ctx.tick()
        raise AssertionError("no end")

    sim = Simulator(dut)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    for process in count, watchdog:
        sim.add_testbench(process, background=True)
    sim.run()


async def read(host, n):
    low, response = await host.read(MAP.offset(NAMES[n]))
    assert response == Resp.OKAY
    high, response = await host.read(MAP.offset(NAMES[n]) + 4)
    assert response == Resp.OKAY
    return high << WHOLE | low


def test_when_nothing_happens_any_more_all_of_it_is_read_at_once():
    async def body(host, totals, quiet):
        for _ in range(5):
            await host.ctx.tick().repeat(1 + host.rng.randrange(100))
            quiet.append(True)
            await host.ctx.tick()
            order = host.rng.sample(range(len(WIDTHS)), len(WIDTHS))
            assert [await read(host, n) for n in order] == [totals[n] for n in order]
            quiet.clear()

    run(body)


def test_a_counter_that_runs_is_read_as_it_was_while_the_host_waited():
    """The 32-bit steps carry into the high word all the time: a torn value would be far off."""

    async def body(host, totals, quiet):
        for _ in range(60):
            n = host.rng.randrange(len(WIDTHS))
            before = totals[n]
            low, _ = await host.read(MAP.offset(NAMES[n]))
            after = totals[n]
            high, _ = await host.read(MAP.offset(NAMES[n]) + 4)
            assert before <= high << WHOLE | low <= after

    run(body, idle=0.0)


def test_clear_zeroes_all_and_counts_on():
    async def body(host, totals, quiet):
        await host.ctx.tick().repeat(50)
        for pause in (1, 7, 60):
            await host.write(MAP.offset("control"), 1)
            await host.ctx.tick().repeat(pause)
            quiet.append(True)
            await host.ctx.tick()
            assert [await read(host, n) for n in range(len(WIDTHS))] == totals
            quiet.clear()
        assert totals[2] < 500 << WHOLE

    run(body)


def test_what_is_no_counter_is_read_as_ever():
    cycles = {}

    async def body(host, totals, quiet):
        for name in "spare", NAMES[0]:
            ctx, axil = host.ctx, host.axil
            ctx.set(axil.rready, 1)
            ctx.set(axil.araddr, MAP.offset(name))
            ctx.set(axil.arvalid, 1)
            await ctx.tick()
            ctx.set(axil.arvalid, 0)
            cycles[name] = 1
            while not ctx.get(axil.rvalid):
                await ctx.tick()
                cycles[name] += 1
            await ctx.tick().repeat(3)
        assert await host.write(MAP.offset(NAMES[1]), 3) == Resp.SLVERR
        assert await host.read(MAP.offset("spare")) == [5, Resp.OKAY]

    run(body)
    assert cycles == {"spare": 5, NAMES[0]: 5 + CounterMemory(widths=WIDTHS).lag + 5}


@pytest.mark.parametrize("widths", [(), (1,), (1, 0)])
def test_widths_are_checked(widths):
    with pytest.raises(ValueError, match="widths must have at least 2 counters"):
        CounterMemory(widths=widths)


@pytest.mark.parametrize("count", [0, 1])
def test_a_map_with_too_few_counters_is_refused(count):
    counters = tuple(Register(n, "counter", "Events.", bits=64) for n in "ab"[:count])
    registers = RegisterMap((Register("spare", "rw", "A word."), *counters))
    with pytest.raises(ValueError, match=f"counters in memory must be at least 2, not {count}"):
        RegisterFile(registers=registers, counters_in_memory=True)


def test_a_map_with_other_counters_is_refused():
    registers = RegisterMap(tuple(Register(n, "counter", "Events.") for n in "ab"))
    with pytest.raises(ValueError, match="counters in memory must have 64 bits"):
        RegisterFile(registers=registers, counters_in_memory=True)
