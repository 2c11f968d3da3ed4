"""Questions that carry chains answer."""

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.hdl.arith.carry import any_by_carry


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("width", [1, 2, 5, 7])
def test_a_set_bit_is_found_wherever_it_is(width, group):
    bits, found = Signal(width), Signal()
    m = Module()
    m.d.comb += found.eq(any_by_carry(bits, group))

    async def bench(ctx):
        for value in range(1 << width):
            ctx.set(bits, value)
            assert ctx.get(found) == (value != 0)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
