# amaranth: UnusedElaboratable=no
"""Clock domain crossings: amaranth.lib's synchronisers pass; every other path between two clocks is a fault."""

import re

import pytest
from amaranth import (
    ClockDomain,
    ClockSignal,
    Elaboratable,
    EnableInserter,
    Instance,
    Module,
    ResetInserter,
    ResetSignal,
    Signal,
)
from amaranth.lib.cdc import AsyncFFSynchronizer, FFSynchronizer, PulseSynchronizer, ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFO, AsyncFIFOBuffered
from amaranth.lib.memory import Memory

from fanin.base.errors import CheckFailed
from fanin.sim.boards.crossings import check_crossings, find_crossings
from fanin.sim.boards.netlist import read_netlist
from tests.sim.boards.build import Pinned, place, synthesise
from tests.sim.boards.designs import RgmiiLoop


def with_sources(width=8):
    """A design whose domain ``one`` has a few registers to begin a crossing with."""
    p = Pinned()
    a, b, word = Signal(name="a"), Signal(name="b"), Signal(width, name="word")
    p.m.d.one += [a.eq(p.port("i_a", 1)), b.eq(p.port("i_b", 1)), word.eq(p.port("i_word", width))]
    return p, a, b, word


def fifo(p, name, kind, depth, level=True):
    f = p.m.submodules[name] = kind(width=8, depth=depth, r_domain="two", w_domain="one")
    p.m.d.comb += [f.w_data.eq(p.ports["i_word"]), f.w_en.eq(p.ports["i_a"]), f.r_en.eq(p.ports["i_b"])]
    p.m.d.two += p.port(f"o_{name}", 8).eq(f.r_data ^ f.r_rdy ^ f.r_rst)
    p.m.d.one += p.port(f"o_{name}_ready", 8).eq(f.w_rdy ^ (f.w_level if level else 0))


def test_synchronisers_pass(tmp_path):
    p, a, b, word = with_sources()
    p.m.submodules.flag = FFSynchronizer(a, p.port("o_flag", 1), o_domain="two", init=1)
    p.m.submodules.bus = FFSynchronizer(word, p.port("o_bus", 8), o_domain="two", stages=3)
    p.m.submodules.pulse = pulse = PulseSynchronizer("one", "two")
    p.m.d.comb += [pulse.i.eq(a), p.port("o_pulse", 1).eq(pulse.o)]
    p.m.domains += [ClockDomain("three"), ClockDomain("four")]
    for domain, stages in (("three", 2), ("four", 4)):
        p.m.d.comb += ClockSignal(domain).eq(ClockSignal("two"))
        p.m.submodules += ResetSynchronizer(~b if stages == 2 else b, domain=domain, stages=stages)
        p.m.d[domain] += p.port(f"o_{domain}", 1).eq(~p.ports["i_a"])
    fifo(p, "small", AsyncFIFO, 16)
    fifo(p, "large", AsyncFIFO, 512)
    fifo(p, "buffered", AsyncFIFOBuffered, 33, level=False)
    report = check_crossings(synthesise(p, tmp_path))
    assert report.clocks == ("one_clk", "two_clk")
    found = {(c.synchroniser, c.source_clock, c.target_clock) for c in report.crossings}
    forth = [(way, "one_clk", "two_clk") for way in ("FFSynchronizer", "AsyncFFSynchronizer", "AsyncFIFO")]
    assert found == {*forth, ("FFSynchronizer", "two_clk", "one_clk")}
    assert {"small.storage", "large.storage"} <= {c.sources[0][:13] for c in report.crossings}


def test_level_of_a_buffered_fifo(tmp_path):
    """Amaranth makes it of logic in front of a synchroniser (r_rdy without r_en): nobody may use it."""
    p, *_ = with_sources()
    fifo(p, "buffered", AsyncFIFOBuffered, 33)
    faults = find_crossings(read_netlist(synthesise(p, tmp_path))).faults
    assert {(fault.target, fault.fault) for fault in faults} == {
        ("buffered.consume_buffered_cdc.stage0", "logic in front of an FFSynchronizer")
    }


class Staged(Elaboratable):
    """What looks like a synchroniser by its names, with another user of its first stage."""

    def __init__(self, i, o):
        self.i, self.o = i, o

    def elaborate(self, platform):
        m = Module()
        stage0, stage1 = (Signal(name=f"stage{number}", reset_less=True) for number in range(2))
        m.d.two += [stage0.eq(self.i), stage1.eq(stage0)]
        m.d.comb += self.o.eq(stage1 ^ stage0)
        return m


class Storage(Elaboratable):
    """What looks like an AsyncFIFO's memory by its name."""

    def __init__(self, i, o, depth):
        self.i, self.o, self.depth = i, o, depth

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = memory = Memory(shape=8, depth=self.depth, init=[])
        write, read = memory.write_port(domain="one"), memory.read_port(domain="two")
        place_of_next = Signal(range(self.depth))
        m.d.one += place_of_next.eq(place_of_next + 1)
        m.d.two += read.addr.eq(read.addr + 3)
        m.d.comb += [write.addr.eq(place_of_next), write.en.eq(1), write.data.eq(self.i), self.o.eq(read.data)]
        return m


class Bad:
    """Faults, a method each, with what is told of it; the name of each is in all that it makes."""

    def data(self, p, a, b, word):
        r""".*one_clk\) to o_data\[\d\] DI \(two_clk\): no synchroniser"""
        p.m.d.two += p.port("o_data", 8).eq(word + 1)

    def enable(self, p, a, b, word):
        r"""a \(one_clk\) to o_enable\[\d\] CE \(two_clk\): no synchroniser"""
        with p.m.If(a):
            p.m.d.two += p.port("o_enable", 8).eq(p.ports["i_word"])

    def reset(self, p, a, b, word):
        r"""a \(one_clk\) to o_reset\[\d\] LSR \(two_clk\): no synchroniser"""
        inner = Module()
        inner.d.two += p.port("o_reset", 8).eq(p.ports["i_word"] + 1)
        p.m.submodules.inner = ResetInserter({"two": a})(inner)

    def asynchronous_reset(self, p, a, b, word):
        r""".*one_clk\) to o_asynchronous_reset\S* LSR \(two_clk\): a register that another clock resets"""
        p.m.domains += ClockDomain("three", async_reset=True)
        p.m.d.comb += [ClockSignal("three").eq(ClockSignal("two")), ResetSignal("three").eq(b)]
        p.m.d.three += p.port("o_asynchronous_reset", 8).eq(p.ports["i_word"] + 3)

    def logic_in_front(self, p, a, b, word):
        r""".*one_clk\) to logic_in_front.stage0 DI \(two_clk\): logic in front of an FFSynchronizer"""
        p.m.submodules.logic_in_front = FFSynchronizer(a & b, p.port("o_front", 1), o_domain="two")

    def one_stage(self, p, a, b, word):
        r""".*one_clk\) to one_stage.stage0 DI \(two_clk\): the first stage .* used by more"""
        p.m.submodules.one_stage = Staged(word[7], p.port("o_one_stage", 1))

    def logic_at_reset(self, p, a, b, word):
        r""".*one_clk\) to o_logic_at_reset\S* LSR \(two_clk\): logic in front of an AsyncFFSynchronizer"""
        release = p.port("o_logic_at_reset", 1)
        p.m.submodules.logic_at_reset = AsyncFFSynchronizer(a ^ b, release, o_domain="two")

    def address(self, p, a, b, word):
        r""".*one_clk\) to o_address\S* AD[AB]\d+ \(two_clk\): no synchroniser"""
        p.m.submodules.address = memory = Memory(shape=8, depth=512, init=range(256))
        read = memory.read_port(domain="two")
        p.m.d.comb += [read.addr.eq(word), p.port("o_address", 8).eq(read.data)]

    def write_address(self, p, a, b, word):
        r""".*one_clk\) to write_address\S* WAD \(two_clk\): no synchroniser"""
        p.m.submodules.write_address = memory = Memory(shape=8, depth=16, init=[])
        write, read = memory.write_port(domain="two"), memory.read_port(domain="comb")
        p.m.d.comb += [write.addr.eq(word), write.en.eq(1), write.data.eq(p.ports["i_word"])]
        p.m.d.comb += read.addr.eq(p.ports["i_word"])
        p.m.d.two += p.port("o_write_address", 8).eq(read.data)

    def block_ram(self, p, a, b, word):
        r"""block_ram.storage\S* \(one_clk\) to \S+ contents \(two_clk\): block_ram has no synchroniser"""
        p.m.submodules.block_ram = Storage(word, p.port("o_block_ram", 8), 1024)

    def distributed_ram(self, p, a, b, word):
        r"""distributed_ram.storage\S* .*one_clk\) to \S+ DI \(two_clk\): distributed_ram has no sync"""
        p.m.submodules.distributed_ram = Storage(word, p.port("o_distributed_ram", 8), 16)

    def plain_ram(self, p, a, b, word):
        r"""plain_ram\S* .*one_clk\) to \S+ DI \(two_clk\): a memory of another clock that is no AsyncFIFO"""
        p.m.submodules.plain_ram = memory = Memory(shape=8, depth=16, init=[])
        write, read = memory.write_port(domain="one"), memory.read_port(domain="comb")
        p.m.d.comb += [
            write.addr.eq(word),
            write.en.eq(1),
            write.data.eq(word),
            read.addr.eq(p.ports["i_word"]),
        ]
        p.m.d.two += p.port("o_plain_ram", 8).eq(read.data)

    def read_address(self, p, a, b, word):
        r""".*one_clk\) to o_read_address\S* DI \(two_clk\): no synchroniser"""
        p.m.submodules.read_address = memory = Memory(shape=8, depth=16, init=[])
        write, read = memory.write_port(domain="two"), memory.read_port(domain="comb")
        p.m.d.comb += [write.addr.eq(p.ports["i_word"]), write.en.eq(1), write.data.eq(p.ports["i_word"])]
        p.m.d.comb += read.addr.eq(word[:4])
        p.m.d.two += p.port("o_read_address", 8).eq(read.data)

    def enabled_synchroniser(self, p, a, b, word):
        r"""a .*one_clk\) to enabled_synchroniser.stage0 CE \(two_clk\): another clock enables it"""
        inner = FFSynchronizer(word[6], p.port("o_enabled", 1), o_domain="two")
        p.m.submodules.enabled_synchroniser = EnableInserter({"two": a})(inner)

    def ddr_output(self, p, a, b, word):
        r"""a \(one_clk\) to o_ddr_output D0 \(two_clk\): no synchroniser"""
        ports = {"i_D0": a, "i_D1": 0, "i_RST": 0, "i_SCLK": ClockSignal("two")}
        p.m.submodules.ddr = Instance("ODDRX1F", **ports, o_Q=p.port("o_ddr_output", 1))

    def divided_clock(self, p, a, b, word):
        r""".*one_clk\) to o_divided_clock\S* DI \(divided\S*\): no synchroniser"""
        p.m.domains += ClockDomain("four", reset_less=True)
        divided = Signal()
        p.m.d.one += divided.eq(~divided)
        p.m.d.comb += ClockSignal("four").eq(divided)
        p.m.d.four += p.port("o_divided_clock", 8).eq(word ^ 0xA5)


def test_other_paths_are_refused(tmp_path):
    p, a, b, word = with_sources()
    p.m.submodules.good = FFSynchronizer(b, p.port("o_good", 1), o_domain="two")
    told = {name: method.__doc__ for name, method in vars(Bad).items() if not name.startswith("__")}
    for name in told:
        getattr(Bad(), name)(p, a, b, word)
    path = synthesise(p, tmp_path)
    faults = [str(fault) for fault in find_crossings(read_netlist(path)).faults]
    for name, pattern in told.items():
        matching = [fault for fault in faults if re.match(pattern, fault)]
        assert matching, (name, [fault for fault in faults if name in fault])
        faults = [fault for fault in faults if fault not in matching]
    assert [fault.split(")")[1] for fault in faults] == [" to o_enabled CE (two_clk"]  # the second stage
    with pytest.raises(
        CheckFailed, match=r"top.json: \d+ unsafe clock domain crossings:(\n  .*){10}\n  and \d+ more$"
    ):
        check_crossings(path)


def test_a_board_before_and_behind_placement(tmp_path):
    routed = place(RgmiiLoop(), tmp_path)
    before, behind = (find_crossings(read_netlist(path)) for path in (tmp_path / "top.json", routed))
    assert not before.faults
    assert not behind.faults
    kinds = [
        sorted((c.synchroniser, c.source_clock, c.target_clock) for c in r.crossings) for r in (before, behind)
    ]
    assert kinds[0] == kinds[1]
    assert before.clocks == ("pll.CLKOP", "pll.CLKOS", "rgmii_0__rx_clk__io")
    assert ("AsyncFFSynchronizer", "pll.LOCK", "pll.CLKOP") in kinds[0]
