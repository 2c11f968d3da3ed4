# amaranth: UnusedElaboratable=no
"""Memories of layers that hold words per channel, as emitted, against what their costs count."""

import pytest

from fanin.cnn.layers import bias, global_avg_pool
from fanin.cnn.layers.layer import Parallelism, Shape, Storage
from fanin.hdl.area import LARGE_BITS, Area
from fanin.hdl.emit import emit_verilog
from fanin.hdl.layers.bias import Bias
from fanin.hdl.layers.global_pool import GlobalAvgPool

CHANNELS = LARGE_BITS // 32  # so many that the emitted file names each memory


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(
    ("make", "facts", "more"),
    [
        (Bias, bias.Bias, {"gradient": True}),
        (GlobalAvgPool, global_avg_pool.GlobalAvgPool, {"gradient": True}),
        (GlobalAvgPool, global_avg_pool.GlobalAvgPool, {}),
    ],
)
def test_memories_are_those_that_the_cost_counts(make, facts, more, lanes):
    layer, p = facts(inputs=(Shape(2, 2, CHANNELS),), **more), Parallelism(pi=lanes, po=lanes)
    counted = [*layer.buffers(p, Storage.CHIP), *(layer.resident(p) if layer.parameters else ())]
    area = Area.read(emit_verilog(make(layer=layer, parallelism=p)))
    found = [(memory.width, memory.depth) for memory in area.memories for _ in range(memory.count)]
    assert sorted(found) == sorted((memory.width, memory.depth) for memory in counted)
