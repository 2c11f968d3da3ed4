"""What is said of a memory reaches yosys."""

from amaranth import Module
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.memory import NEVER_READ_AS_WRITTEN, allow_collisions


class _TwoMemories(wiring.Component):
    """One that is never read as it is written, and one that may be."""

    def __init__(self):
        super().__init__({"address": In(4), "i": In(8), "en": In(1), "o": Out(8), "p": Out(8)})

    def elaborate(self, platform):
        m = Module()
        for name, out, attrs in ("never", self.o, NEVER_READ_AS_WRITTEN), ("ever", self.p, {}):
            m.submodules[name] = memory = Memory(shape=8, depth=16, init=[], attrs=attrs)
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [write.addr.eq(self.address), write.data.eq(self.i), write.en.eq(self.en)]
            m.d.comb += [read.addr.eq(self.address), out.eq(read.data)]
        return m


def _masks(text):
    """Of each memory's read port, by name."""
    masks, memory = {}, None
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["cell", "$memrd_v2"]:
            memory = None
        elif words[:2] == ["parameter", "\\MEMID"]:
            memory = words[2].strip('"').lstrip("\\")
        elif words[:2] == ["parameter", "\\COLLISION_X_MASK"]:
            masks[memory] = words[2]
    return masks


def test_the_port_of_the_memory_that_says_so_and_no_other():
    before = rtlil.convert(_TwoMemories(), name="top")
    after = allow_collisions(before)
    assert _masks(before) == {"never": "1'0", "ever": "1'0"}
    assert _masks(after) == {"never": "1'1", "ever": "1'0"}
    assert after.replace("COLLISION_X_MASK 1'1", "COLLISION_X_MASK 1'0") == before
