"""Between registers and NIC: what a host gets wrong is refused, with its cause."""

from dataclasses import replace

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.bus.register_map import Access
from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.nic_control import nic_settings
from fanin.hdl.rdma.registers import rdma_registers
from fanin.rdma.facts import PRESETS, Refusal

CONFIG = replace(PRESETS["tiny"], address_width=20)
END = 1 << CONFIG.address_width
FASTEST_MHZ = 500  # no card's clock is faster
FLAGS = ("connect", "pair_enable", "set_region", "region_enable")


class Registers(dict):
    """Any register by its name."""

    def __missing__(self, name):
        self[name] = Signal(1 if name in FLAGS else 64, name=name)
        return self[name]

    __getattr__ = dict.__getitem__


CASES = [
    (0, END, True),
    (END - 64, END, True),
    (0, END - 1, True),
    (END - 64, END + 64, False),
    (0, END + 1, False),
    (0, 2 * END, False),
    (0, 2 * END + 64, False),
    (0, 1 << 63, False),
    (END, END, False),
    (1 << 63, END, False),
]


def test_a_region_up_to_the_last_address_is_enabled_and_none_beyond():
    m, registers, nic = Module(), Registers(), RdmaNic(config=CONFIG)
    nic._MustUse__used = True  # its ports alone are looked at
    nic_settings(m, CONFIG, registers, nic)

    async def bench(ctx):
        ctx.set(registers.region_enable, 1)
        for base, limit, enabled in CASES:
            ctx.set(registers.region_base, base)
            ctx.set(registers.region_limit, limit)
            await ctx.tick().repeat(2)
            region = nic.region.payload
            assert ctx.get(region.enable) == enabled, (base, limit)
            if enabled:
                assert (ctx.get(region.base), ctx.get(region.limit)) == (base, limit)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def control(bench):
    """Run ``bench(ctx, registers, nic)``, in which the NIC is a set of ports."""
    m, registers, nic = Module(), Registers(), RdmaNic(config=CONFIG)
    nic._MustUse__used = True
    nic_settings(m, CONFIG, registers, nic)

    async def run(ctx):
        await bench(ctx, registers, nic)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run)
    simulator.run()


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)
    await ctx.tick()


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({}, Refusal.NONE),
        ({"pair_index": 3}, Refusal.NONE),
        ({"pair_index": 4}, Refusal.PLACE),
        ({"pair_index": 63}, Refusal.PLACE),
        ({"window": 10}, Refusal.NONE),
        *(({"window": code}, Refusal.SETTINGS) for code in range(11, 16)),
        ({"mtu": 4}, Refusal.NONE),
        ({"mtu": 5}, Refusal.SETTINGS),
        ({"mtu": 7, "pair_enable": 0}, Refusal.NONE),
    ],
)
def test_a_connection_that_cannot_be_is_refused_with_its_cause(fields, refusal):
    async def bench(ctx, registers, nic):
        for name, value in ({"pair_enable": 1} | fields).items():
            ctx.set(registers[name], value)
        await ctx.tick().repeat(2)
        await pulse(ctx, registers.connect)
        assert ctx.get(registers.connect_refusal) == refusal
        assert ctx.get(nic.connect.valid) == (refusal == Refusal.NONE)

    control(bench)


def test_a_connection_is_what_the_registers_said_at_its_command_and_a_second_one_is_refused():
    async def bench(ctx, registers, nic):
        ctx.set(registers.pair_index, 2)
        ctx.set(registers.send_psn, 77)
        await ctx.tick().repeat(2)
        await pulse(ctx, registers.connect)
        ctx.set(registers.pair_index, 1)
        ctx.set(registers.send_psn, 78)
        await pulse(ctx, registers.connect)
        assert ctx.get(registers.connect_refusal) == Refusal.BUSY
        assert ctx.get(nic.connect.payload.index) == 2
        assert ctx.get(nic.connect.payload.settings.send_psn) == 77
        ctx.set(nic.connect.ready, 1)
        await ctx.tick()
        assert not ctx.get(nic.connect.valid)

    control(bench)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({}, Refusal.NONE),
        ({"region_index": 4}, Refusal.PLACE),
        ({"region_limit": END + 1}, Refusal.RANGE),
        ({"region_base": END}, Refusal.RANGE),
        ({"region_base": END, "region_enable": 0}, Refusal.NONE),
    ],
)
def test_a_region_that_cannot_be_is_refused_with_its_cause(fields, refusal):
    async def bench(ctx, registers, nic):
        for name, value in ({"region_enable": 1, "region_limit": END} | fields).items():
            ctx.set(registers[name], value)
        await ctx.tick().repeat(2)
        ctx.set(registers.set_region, 1)
        assert ctx.get(nic.region.valid) == (refusal != Refusal.PLACE)
        await ctx.tick()
        ctx.set(registers.set_region, 0)
        assert ctx.get(registers.region_refusal) == refusal

    control(bench)


def test_no_counter_of_the_node_wraps_within_a_day_at_an_event_a_cycle():
    counters = [r for r in rdma_registers(PRESETS["u280"]).registers if r.access is Access.COUNTER]
    assert {register.name for register in counters} >= {"accepted", "refused_posts", "sent", "taken", "lost"}
    for register in counters:
        most = (1 << register.step) - 1  # added in a cycle
        assert (1 << register.bits) / (most * 1e6 * FASTEST_MHZ) > 24 * 3600, register.name
