# amaranth: UnusedElaboratable=no
"""What a design holds, as its file says it, against what it was described with."""

import pytest
from amaranth import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from fanin.evaluation.bench.netlist import synthesise
from fanin.hdl.area import Area, LargeMemory
from fanin.hdl.emit import emit_verilog, shared


class Store(wiring.Component):
    """A memory and a count of what was written; ``depth`` words of 16 bits."""

    def __init__(self, *, depth):
        self.depth = depth
        super().__init__({"write": In(1), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(shape=16, depth=self.depth, init=[])
        read, write = store.read_port(), store.write_port()
        count = Signal(range(self.depth))
        with m.If(self.write):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [write.addr.eq(count), write.data.eq(count), write.en.eq(self.write), read.addr.eq(count)]
        m.d.comb += self.o.eq(read.data)
        return m


class Stores(wiring.Component):
    """Two large stores and a small one, which share a module each, and a register of 16 bits."""

    def __init__(self):
        super().__init__({"write": In(1), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        stores = [shared(Store(depth=depth)) for depth in (4096, 4096, 64)]
        for number, store in enumerate(stores):
            m.submodules[f"store{number}"] = store
            m.d.comb += store.write.eq(self.write)
        m.d.sync += self.o.eq(stores[0].o ^ stores[1].o ^ stores[2].o)
        return m


def test_every_instance_counts_and_large_memories_are_named():
    area = Area.read(emit_verilog(Stores()))
    assert area.flip_flops == 12 + 12 + 6 + 16
    assert area.memory_bits == 16 * (4096 + 4096 + 64)
    assert area.memories == (LargeMemory("store_depth4096", "store", 2, 16, 4096),)


def test_flip_flops_are_those_that_synthesis_finds():
    verilog = emit_verilog(Store(depth=512), name="top")
    assert synthesise(verilog, "top").flip_flops == Area.read(verilog).flip_flops == 9


def test_a_text_that_does_not_say_it_is_refused():
    with pytest.raises(ValueError, match="the Verilog has no line with its area"):
        Area.read("module x; endmodule\n")
