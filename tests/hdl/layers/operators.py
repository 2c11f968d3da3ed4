"""What a component is made of, beside the cost of its layer."""

from collections import Counter

from amaranth import Module
from amaranth.back import rtlil

from fanin.cnn.layers.layer import Storage
from fanin.hdl.area import read_rtlil
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier


def check_cost(component, monkeypatch, storage=Storage.CHIP):
    """Assert that operators and memories, with their ports, are those of the layer's cost."""
    layer, p = component.layer, component.parallelism
    found = Counter()

    def count(self, platform):
        found[type(self)] += 1
        return Module()

    for operator in (FP32Adder, FP32Multiplier):
        monkeypatch.setattr(operator, "elaborate", count)
    modules = read_rtlil(rtlil.convert(component))
    said = layer.operations(p)
    assert found[FP32Adder] == said["add"] + said["mac"]
    assert found[FP32Multiplier] == said["mul"] + said["mac"]
    there = [
        (memory.width, memory.depth, memory.read_ports, memory.write_ports)
        for module in modules.values()
        for memory in module.memories.values()
        if memory.clocked  # others are queues of LUTs
    ]
    resident = layer.resident(p) if layer.parameters and storage is Storage.CHIP else ()
    memories = [*layer.buffers(p, storage), *resident]
    assert sorted(there) == sorted((m.width, m.depth, m.copies + m.dual, 1) for m in memories)
