# amaranth: UnusedElaboratable=no
"""Bit-serial multipliers: pairs of products, plane by plane, as ``fanin.fixed`` states them."""

import random

import pytest
from amaranth import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin import fixed
from fanin.hdl.arith.bit_serial import PairLanes, PairShifter
from tests.support import new_seed, simulate

INPUTS = 6
LATENCY = 3  # shift, add, select
SPECIAL = [-(2**31), 2**31 - 1, -1, 0, 1]


class _Multipliers(wiring.Component):
    """Both halves; the bits wait for the terms."""

    def __init__(self):
        super().__init__(
            {
                "i": In(data.ArrayLayout(signed(32), INPUTS)),
                "step": In(1),
                "load": In(1),
                "bits": In(INPUTS),
                "o": Out(data.ArrayLayout(signed(32), INPUTS // 2)),
            }
        )
        self.shifter = PairShifter(inputs=INPUTS)
        self.lanes = PairLanes(inputs=INPUTS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.shifter, m.submodules.lanes = self.shifter, self.lanes
        m.d.comb += [
            self.shifter.i.eq(self.i),
            self.shifter.step.eq(self.step),
            self.shifter.load.eq(self.load),
            self.lanes.terms.eq(self.shifter.o),
            self.lanes.bits.eq(self.bits),
            self.o.eq(self.lanes.o),
        ]
        return m


def _run(jobs, *, gap):
    """What the lanes put out for every plane of every job (operands, features, precision)."""
    dut = _Multipliers()
    planes = []  # operands, bits of the features, whether it is the first
    for operands, features, precision in jobs:
        for j in range(1, precision + 1):
            bits = sum((q >> (precision - j) & 1) << k for k, q in enumerate(features))
            planes.append((operands, bits, j == 1))
    seen = []

    async def process(ctx):
        pending = {}  # cycle -> bits for the lanes; cycle -> result due
        due = set()
        cycle = 0
        waiting = list(planes)
        while waiting or due:
            if cycle in due:
                seen.append(list(ctx.get(dut.o)))
                due.discard(cycle)
            go = bool(waiting) and not gap(cycle)
            ctx.set(dut.step, go)
            if go:
                operands, bits, first = waiting.pop(0)
                ctx.set(dut.load, first)
                ctx.set(dut.i, operands if first else [-1] * INPUTS)  # read in the cycles of load only
                pending[cycle + PairShifter.LATENCY] = bits
                due.add(cycle + LATENCY)
            ctx.set(dut.bits, pending.pop(cycle, 0))
            await ctx.tick()
            cycle += 1

    simulate(dut, processes=[process], idle=4 * len(planes) + 20)
    assert len(seen) == len(planes)
    return seen


@pytest.mark.parametrize("gaps", [0, 0.4])
def test_products_of_all_precisions_equal_the_statement_in_fixed(gaps):
    rng = random.Random(new_seed())
    jobs = []
    for precision in range(1, 9):
        for _ in range(6):
            operands = [rng.choice([*SPECIAL, rng.randint(-(2**31), 2**31 - 1)]) for _ in range(INPUTS)]
            features = [rng.choice([0, 2**precision - 1, rng.randrange(2**precision)]) for _ in range(INPUTS)]
            jobs.append((operands, features, precision))
    seen = iter(_run(jobs, gap=lambda cycle: rng.random() < gaps))
    for operands, features, precision in jobs:
        sums = [sum(column) for column in zip(*(next(seen) for _ in range(precision)), strict=True)]
        products = [int(x) for x in fixed.bit_serial(features, operands, precision)]
        assert sums == [a + b for a, b in zip(products[::2], products[1::2], strict=True)]


@pytest.mark.parametrize("component", [PairShifter, PairLanes])
@pytest.mark.parametrize("inputs", [0, 1, 3])
def test_an_odd_number_of_inputs_is_refused(component, inputs):
    with pytest.raises(ValueError, match=f"inputs must be even and at least 2, not {inputs}"):
        component(inputs=inputs)
