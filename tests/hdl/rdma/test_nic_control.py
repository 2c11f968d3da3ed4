"""Between registers and NIC: a region beyond the memory's addresses is never enabled."""

from dataclasses import replace

from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.rdma.nic import RdmaNic
from fanin.hdl.rdma.nic_control import nic_settings
from fanin.rdma import PRESETS

CONFIG = replace(PRESETS["tiny"], address_width=20)
END = 1 << CONFIG.address_width
FLAGS = ("connect", "set_region", "region_enable")


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
