"""Memories in the emitted Verilog: contents, zeros, styles, bytes; and what only simulation may see."""

import re

import pytest
from amaranth import Module
from amaranth.hdl import Assert, Print
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from fanin.evaluation.bench.netlist import synthesise
from fanin.hdl.emit import emit_verilog


class _Store(wiring.Component):
    def __init__(self, *, width, depth, init, granularity=None, clocked=True, transparent=False):
        self.width, self.depth, self.init = width, depth, init
        self.granularity, self.clocked, self.transparent = granularity, clocked, transparent
        enables = width // (granularity or width)
        super().__init__({"address": In(range(depth)), "i": In(width), "write": In(enables), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(shape=self.width, depth=self.depth, init=self.init)
        write = store.write_port(granularity=self.granularity)
        seen = (write,) if self.transparent else ()
        read = store.read_port(domain="sync" if self.clocked else "comb", transparent_for=seen)
        m.d.comb += [read.addr.eq(self.address), write.addr.eq(self.address), self.o.eq(read.data)]
        m.d.comb += [write.data.eq(self.i), write.en.eq(self.write)]
        return m


def test_contents_are_written_word_by_word():
    verilog = emit_verilog(_Store(width=5, depth=4, init=[0, 7]))
    assert re.findall(r"\[(\d)\] = 5'h(\w+);", verilog) == [("0", "00"), ("1", "07"), ("2", "00"), ("3", "00")]
    assert "for (" not in verilog


def test_zeros_take_a_line_per_4096_words_whatever_their_width():
    small, large = (emit_verilog(_Store(width=512, depth=depth, init=[])) for depth in (4, 4096))
    assert len(large) < len(small) + 300
    assert re.search(r"initial for \((\w+) = 0; \1 <= 4095; \1 = \1 \+ 1\) (\w+) \[\1\] = 0;", large)


@pytest.mark.parametrize("depth", [4096, 4097, 10_000])
def test_no_loop_is_longer_than_quartus_takes_and_every_word_is_zeroed(depth):
    verilog = emit_verilog(_Store(width=8, depth=depth, init=[]))
    loops = re.findall(r"for \((\w+) = (\d+); \1 <= (\d+); \1 = \1 \+ 1\)", verilog)
    spans = [range(int(first), int(last) + 1) for _, first, last in loops]
    assert max(map(len, spans)) <= 4096
    assert [word for span in spans for word in span] == [*range(depth)]


def test_a_memory_of_one_bit_is_zeroed_too():
    assert "<= 3;" in emit_verilog(_Store(width=1, depth=4, init=[]))


def test_zeros_are_for_simulation_alone():
    verilog = emit_verilog(_Store(width=8, depth=5000, init=[]))
    (loop,) = re.findall(
        r"(?s)`ifndef SYNTHESIS\n// synthesis translate_off\n(.*?)// synthesis translate_on\n`endif", verilog
    )
    assert "initial for" in loop
    assert "for (" not in verilog.replace(loop, "")


def style(**store):
    """The attributes of the one memory of a store."""
    return dict(
        re.findall(r'^  \(\* (ram_?style) = "(\w+)" \*\)$', emit_verilog(_Store(**store)), re.MULTILINE)
    )


@pytest.mark.parametrize(
    ("store", "where"),
    [
        ({"width": 32, "depth": 512}, "block"),
        ({"width": 31, "depth": 512}, None),  # smaller than half a block
        ({"width": 512, "depth": 256}, None),  # LUTs may be cheaper: the tool knows
        ({"width": 32, "depth": 512, "clocked": False}, None),  # no block RAM can read so
        ({"width": 1024, "depth": 4096}, "ultra"),
        ({"width": 1023, "depth": 4096}, "block"),
        ({"width": 1024, "depth": 4096, "init": [1]}, "block"),  # UltraRAM begins with zeros
        ({"width": 32, "depth": 512, "init": [1]}, "block"),
    ],
)
def test_where_the_size_decides_an_attribute_says_block_or_ultra(store, where):
    expected = {"ram_style": where, "ramstyle": "M20K"} if where else {}
    assert style(**({"init": []} | store)) == expected


@pytest.mark.parametrize("depth", [8, 512, 8192])
@pytest.mark.parametrize("transparent", [False, True])
def test_vivado_is_told_of_a_port_that_shows_what_is_being_written(depth, transparent):
    verilog = emit_verilog(_Store(width=64, depth=depth, init=[], transparent=transparent))
    told = re.search(
        r'(?m)^  \(\* rw_addr_collision = "yes" \*\)\n(  \(\* .*\n)*  reg \[63:0\] \w+ \[\d+:0\];$', verilog
    )
    assert bool(told) == transparent
    assert bool(style(width=64, depth=depth, init=[], transparent=transparent)) == (depth >= 512)


def test_a_write_of_bytes_is_one_if_for_each():
    verilog = emit_verilog(_Store(width=32, depth=512, init=[], granularity=8))
    found = re.findall(
        r"^    if \(write ?\[(\d)\]\)\n      \w+\[\w+\]\[(\d+):(\d+)\] <= i\[\2:\3\];$", verilog, re.MULTILINE
    )
    assert found == [(str(n), str(8 * n + 7), str(8 * n)) for n in range(4)]


@pytest.mark.parametrize("granularity", [None, 8])
def test_yosys_maps_a_store_to_block_ram(granularity):
    verilog = emit_verilog(_Store(width=32, depth=1024, init=[], granularity=granularity), name="top")
    area = synthesise(verilog, "top")
    assert sum(count for cell, count in area.cells.items() if cell.startswith("RAMB")) == 1
    assert sum(count for cell, count in area.cells.items() if cell.startswith("LUT")) == 0


class _Checked(wiring.Component):
    """A register, and what watches it in simulation."""

    def __init__(self):
        super().__init__({"i": In(4), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [self.o.eq(self.i), Assert(self.i != 3), Print("never 3")]
        m.d.comb += Assert(self.i != 5)
        return m


def test_asserts_and_prints_are_for_simulation_alone():
    verilog = emit_verilog(_Checked())
    rest = re.sub(
        r"(?s)`ifndef SYNTHESIS\n// synthesis translate_off\n.*?// synthesis translate_on\n`endif\n",
        "",
        verilog,
    )
    assert verilog.count("assert (") == 2
    assert "$write" in verilog
    assert "assert" not in rest
    assert "$write" not in rest
    assert re.search(r"always @\(posedge clk\)\n    o <= ", rest)
