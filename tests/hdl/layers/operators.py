"""What a component is made of, beside the cost of its layer."""

from collections import Counter

from amaranth import Module
from amaranth.back import rtlil

from fanin.hdl.area import read_rtlil
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier


def check_cost(component, monkeypatch, *, queue):
    """Assert that operators and memories are those of the layer's cost; queues of depth ``queue`` are LUTs."""
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
    memories = [memory for module in modules.values() for memory in module.memories.values()]
    assert sorted((m.width, m.depth) for m in memories if m.depth != queue) == sorted(
        (m.width, m.depth) for m in layer.buffers(p, layer.storages[0])
    )
