# amaranth: UnusedElaboratable=no
"""LUTs of a component, as yosys maps it around operators and memories, against its layer's cost."""

import pytest
from amaranth import Module
from amaranth import Shape as Bits

from fanin.cli.bench.netlist import Goal, synthesise
from fanin.cnn import Stage
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.emit import emit_verilog, module_name
from fanin.hdl.layers.components import component_class
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.layers import ends, pointwise, window
from fanin.layers.family import Memory, family
from fanin.layers.layer import Parallelism, Shape, Storage
from fanin.layers.logic import logic_luts
from tests.hdl.layers.convolutions import conv, dense, parallel
from tests.support import slow

MAP = Shape(8, 8, 16)
ULTRASCALE = family("ultrascale")


def at(layer, lanes):
    """A layer with equal streams."""
    return layer, Parallelism(pi=lanes, po=lanes)


def pool(kind, *, gradient):
    """A pool of 2×2."""
    return kind(inputs=(Shape(8, 8, 8),), kernel=(2, 2), stride=(2, 2), gradient=gradient)


# None of these was used to find the prices.
POINTS = {
    "relu": at(pointwise.Relu(inputs=(MAP,), gradient=True), 2),
    "add": at(pointwise.Add(inputs=2 * (MAP,), gradient=True), 2),
    "bias": at(pointwise.Bias(inputs=(MAP,), gradient=True), 2),
    "global pool": at(window.GlobalAvgPool(inputs=(Shape(8, 8, 32),), gradient=True), 4),
}
MORE = {
    "relu6": at(pointwise.Relu6(inputs=(MAP,), gradient=True), 2),
    "concat": at(pointwise.Concat(inputs=2 * (MAP,), gradient=True), 2),
    "normalisation": at(pointwise.OnlineNorm(inputs=(MAP,), gradient=True), 2),
    "loss": at(ends.SoftCrossLoss(inputs=2 * (Shape(1, 1, 10),), gradient=True), 5),
    "im2col": (
        window.Im2col(
            inputs=(Shape(16, 16, 8),), kernel=(3, 3), stride=(1, 1), padding=4 * (1,), gradient=True
        ),
        Parallelism(pi=2, po=6),
    ),
    "max pool": at(pool(window.MaxPool, gradient=True), 2),
    "average pool": at(pool(window.AvgPool, gradient=True), 2),
    "convolution": (conv((16, 16, 8), 16, 3, padding=1), parallel(4, 2, 2, 2, 2)),
    "first convolution": (conv((14, 14, 3), 16, 5, padding=2, gradient=False), parallel(1, 4, 7, 1, 4)),
    "convolution 1×1": (conv((8, 8, 32), 16, 1), parallel(8, 2, 1, 4, 2)),
    "depthwise": (conv((8, 8, 16), 16, 3, padding=1, groups=16), parallel(1, 4, 2, 2, 2)),
    "dense": (dense(128, 10), parallel(4, 5, 1, 1, 1)),
    "dense in DRAM": (dense(128, 16), parallel(4, 4, 1, 4, 2)),
}


@pytest.mark.parametrize("name", [*POINTS, *slow(*MORE)])
def test_luts_beside_operators_and_memories_are_those_of_the_cost(name, monkeypatch):
    (layer, p), storage = (POINTS | MORE)[name], Storage.DRAM if "DRAM" in name else Storage.CHIP
    area, queues = mapped(
        component_class(Stage(name, layer, p, storage=storage))(layer=layer, parallelism=p), monkeypatch
    )
    shifted = sum(count for cell, count in area.cells.items() if cell.startswith("SRL"))
    found = area.luts + shifted + ULTRASCALE.ram_luts(queues)
    counted = logic_luts(ULTRASCALE, layer.logic_part(storage), layer.logic_units(p))
    assert counted == pytest.approx(found, rel=0.15)


def mapped(component, monkeypatch):
    """Area of a component without its operators, and its queues, which are LUTs."""
    boxes, queues = set(), []

    def leave_out(self, platform):
        boxes.add(module_name(self))
        return Module()

    elaborate = StreamFIFO.elaborate

    def note(self, platform):
        queues.append(Memory(width=Bits.cast(self.shape).width, depth=self.depth))
        return elaborate(self, platform)

    for array in LaneArray, AdderArray:
        monkeypatch.setattr(array, "elaborate", leave_out)
    monkeypatch.setattr(StreamFIFO, "elaborate", note)
    verilog = emit_verilog(component, name="top")
    return synthesise(verilog, "top", options="-uram", goal=Goal.AREA, blackboxes=sorted(boxes)), queues
