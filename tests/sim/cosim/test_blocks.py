"""Emitted Verilog cut into blocks: each module in the blocks that need it, each block whole."""

import re

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib.wiring import Component, In, Out

from fanin.hdl.emit import emit_verilog, shared
from fanin.sim.cosim.blocks import BlockPort, split_blocks


class Leaf(Component):
    def __init__(self, *, width):
        self.width = width
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(~self.i)
        return m


class Inverter(Elaboratable):
    """Not shared: a module below that of what contains it."""

    def __init__(self, leaf):
        self.leaf = leaf

    def elaborate(self, platform):
        m = Module()
        m.submodules.leaf = self.leaf
        return m


class Pair(Component):
    """Two equal leaves, one behind the other."""

    def __init__(self):
        super().__init__({"i": In(4), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        first, second = shared(Leaf(width=4)), shared(Leaf(width=4))
        m.submodules.first, m.submodules.second = Inverter(first), second
        m.d.comb += [first.i.eq(self.i), second.i.eq(first.o), self.o.eq(second.o)]
        return m


class Top(Component):
    def __init__(self):
        super().__init__({"i": In(4), "o": Out(4), "bit": Out(1)})

    def elaborate(self, platform):
        m = Module()
        pair, leaf, bit = shared(Pair()), shared(Leaf(width=4)), shared(Leaf(width=1))
        m.submodules.pair, m.submodules.leaf, m.submodules.single = pair, leaf, bit
        m.d.comb += [pair.i.eq(self.i), leaf.i.eq(pair.o), self.o.eq(leaf.o)]
        m.d.comb += [bit.i.eq(self.i[0]), self.bit.eq(bit.o)]
        return m


@pytest.fixture(scope="module")
def verilog():
    return emit_verilog(Top())


def _modules(text):
    return re.findall(r"^module (\w+)\(", text, re.MULTILINE)


def test_one_block_has_every_module(verilog):
    (block,) = split_blocks(verilog, "top")
    assert block.module == "top"
    assert block.verilog == verilog[verilog.index("\n\n") + 1 :]
    assert set(block.ports) == {BlockPort("i", 4, False), BlockPort("o", 4, True), BlockPort("bit", 1, True)}


def test_what_is_apart_is_left_out_of_the_others(verilog):
    pair, top = split_blocks(verilog, "top", ["Pair"])
    assert [pair.module, top.module] == ["pair", "top"]
    assert set(pair.ports) == {BlockPort("i", 4, False), BlockPort("o", 4, True)}
    assert _modules(pair.verilog) == ["leaf_width4", "pair", "pair__first"]
    assert _modules(top.verilog) == ["leaf_width1", "leaf_width4", "top"], "a leaf that both need is in both"


def test_each_block_comes_after_those_that_it_instantiates(verilog):
    blocks = split_blocks(verilog, "top", ["Pair", "Leaf"])
    assert [block.module for block in blocks][-1] == "top"
    names = [block.module for block in blocks]
    assert names.index("leaf_width4") < names.index("pair")
    assert sorted(module for block in blocks for module in _modules(block.verilog)) == sorted(
        ["leaf_width1", "leaf_width4", "pair", "pair__first", "top"]
    )


def test_a_class_of_which_there_is_none_is_refused(verilog):
    with pytest.raises(ValueError, match="separate names Leave, of which there is none"):
        split_blocks(verilog, "top", ["Pair", "Leave"])
