"""Memories in the emitted Verilog: contents as given, and zeros without a line per word."""

import re

from amaranth import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.emit import emit_verilog


class _Store(wiring.Component):
    def __init__(self, *, width, depth, init):
        self.width, self.depth, self.init = width, depth, init
        super().__init__({"address": In(range(depth)), "i": In(width), "write": In(1), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(shape=self.width, depth=self.depth, init=self.init)
        read, write = store.read_port(), store.write_port()
        m.d.comb += [read.addr.eq(self.address), write.addr.eq(self.address), self.o.eq(read.data)]
        m.d.comb += [write.data.eq(self.i), write.en.eq(self.write)]
        return m


def test_contents_are_written_word_by_word():
    verilog = emit_verilog(_Store(width=5, depth=4, init=[0, 7]))
    assert re.findall(r"\[(\d)\] = 5'h(\w+);", verilog) == [("0", "00"), ("1", "07"), ("2", "00"), ("3", "00")]
    assert "for (" not in verilog


def test_zeros_take_one_line_whatever_the_size():
    small, large = (emit_verilog(_Store(width=512, depth=depth, init=[])) for depth in (4, 4096))
    assert len(large) < len(small) + 200
    assert re.search(r"initial for \((\w+) = 0; \1 <= 4095; \1 = \1 \+ 1\) (\w+) \[\1\] = 0;", large)


def test_a_memory_of_one_bit_is_zeroed_too():
    assert "<= 3;" in emit_verilog(_Store(width=1, depth=4, init=[]))
