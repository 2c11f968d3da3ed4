# amaranth: UnusedElaboratable=no
"""Shared components under ``ResetInserter``, ``EnableInserter`` and ``DomainRenamer``."""

import random
import re
import subprocess

import pytest
from amaranth import ClockDomain, ClockSignal, DomainRenamer, EnableInserter, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from fanin.hdl.emit import emit_verilog, shared
from fanin.sim.cosim.build import EXECUTABLE, build
from tests.support import new_seed

CYCLES = 200
MAIN = """
#include "Vtop.h"
#include <cstdio>
int main(int argc, char** argv) {
    Vtop top;
    for (const char* c = argv[1]; *c; ++c) {
        top.clear = (*c - '0') & 1;
        top.drop = (*c - '0') >> 1;
        top.clk = 0; top.eval();
        std::printf("%d ", int(top.sum));
        top.clk = 1; top.eval();
    }
}
"""


class Counter(wiring.Component):
    """A leaf with a register that a reset makes 5, and one that it leaves alone."""

    def __init__(self):
        super().__init__({"sum": Out(9)})

    def elaborate(self, platform):
        m = Module()
        count, kept = Signal(8, init=5), Signal(8, reset_less=True)
        m.d.sync += [count.eq(count + 1), kept.eq(kept + 3)]
        m.d.comb += self.sum.eq(count + kept)
        return m


class Pair(wiring.Component):
    """Two counters one level down, of which one has a reset of its own."""

    def __init__(self):
        super().__init__({"drop": In(1), "sum": Out(10)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.one = one = shared(Counter())
        other = shared(Counter())
        m.submodules.other = ResetInserter(self.drop)(other)
        m.d.comb += self.sum.eq(one.sum + other.sum)
        return m


class Cleared(wiring.Component):
    """A pair that ``clear`` resets, and a counter that nothing does."""

    def __init__(self):
        super().__init__({"clear": In(1), "drop": In(1), "sum": Out(11)})

    def elaborate(self, platform):
        m = Module()
        pair = Pair()
        m.submodules.pair = ResetInserter(self.clear)(pair)
        m.submodules.free = free = shared(Counter())
        m.d.comb += [pair.drop.eq(self.drop), self.sum.eq(pair.sum + free.sum)]
        return m


class Within(wiring.Component):
    """A counter under what ``around`` makes of the component that holds it."""

    def __init__(self, around):
        self.around = around.__name__
        self._around = around
        super().__init__({"control": In(1), "sum": Out(9)})

    def elaborate(self, platform):
        m = Module()
        m.domains.other = ClockDomain(local=True, reset_less=True)
        m.d.comb += ClockSignal("other").eq(ClockSignal("sync"))
        inner = Module()
        inner.submodules.counter = counter = shared(Counter())
        m.d.comb += self.sum.eq(counter.sum)
        m.submodules.inner = self._around(self.control)(inner)
        return m


def renamed(control):
    return DomainRenamer("other")


def reset_in_other(control):
    return ResetInserter({"other": control})


def enabled_in_other(control):
    return EnableInserter({"other": control})


def connection(verilog, port):
    return re.findall(rf"^    \.{port}\((.*)\)", verilog, re.MULTILINE)


def in_amaranth(component, inputs):
    sums = []

    async def bench(ctx):
        for word in inputs:
            ctx.set(component.clear, word & 1)
            ctx.set(component.drop, word >> 1)
            sums.append(ctx.get(component.sum))
            await ctx.tick()

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return sums


@pytest.mark.verilator
def test_verilog_is_reset_when_the_simulator_is():
    rng = random.Random(new_seed())
    inputs = rng.choices(range(4), weights=(20, 2, 2, 1), k=CYCLES)
    top = {"top.v": emit_verilog(Cleared(), name="top"), "main.cpp": MAIN}
    program = build(top, own_main=True, quiet=True) / EXECUTABLE
    done = subprocess.run([program, "".join(map(str, inputs))], capture_output=True, text=True, check=True)
    assert [int(text) for text in done.stdout.split()] == in_amaranth(Cleared(), inputs)


def test_one_module_serves_whatever_resets_its_instances():
    verilog = emit_verilog(Cleared())
    assert len(re.findall(r"^module counter\(", verilog, re.MULTILINE)) == 1
    assert len(re.findall(r"^  counter ", verilog, re.MULTILINE)) == 3


@pytest.mark.parametrize("around", [reset_in_other, enabled_in_other])
def test_what_is_done_to_another_domain_changes_nothing(around):
    assert connection(emit_verilog(Within(around)), "rst")[0] == "rst"


def test_a_renamed_domain_is_the_instance_s():
    verilog = emit_verilog(Within(renamed))
    assert "other_clk" in connection(verilog, "clk")
    assert connection(verilog, "rst")[0] == "1'h0"  # the domain has none


def test_an_enable_is_refused():
    with pytest.raises(ValueError, match=r"counter: a shared\(\) component cannot be under EnableInserter"):
        emit_verilog(Within(EnableInserter))
