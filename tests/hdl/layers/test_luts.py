# amaranth: UnusedElaboratable=no
"""LUTs of a component, and of a node, as yosys maps them around operators, against the cost."""

import re

import pytest
from amaranth import Module

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Stage
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.egress import Egress
from fanin.cnn.layers.family import family
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.ingress import Ingress
from fanin.cnn.layers.layer import Parallelism, Shape, Storage
from fanin.cnn.layers.links import graph_contexts
from fanin.cnn.layers.logic import device_luts, logic_luts, units_luts
from fanin.cnn.layers.max_pool import MaxPool
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.parts import PlacedNetwork
from fanin.evaluation.bench.netlist import Goal, synthesise
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.emit import emit_verilog, module_name
from fanin.hdl.layers.components import component_class
from fanin.hdl.layers.node import ClusterNode
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


# None of these layers was used to find the prices.
POINTS = {
    "relu": at(Relu(inputs=(MAP,), gradient=True), 2),
    "add": at(Add(inputs=2 * (MAP,), gradient=True), 2),
    "bias": at(Bias(inputs=(MAP,), gradient=True), 2),
    "global pool": at(GlobalAvgPool(inputs=(Shape(8, 8, 32),), gradient=True), 4),
}
MORE = {
    "relu6": at(Relu6(inputs=(MAP,), gradient=True), 2),
    "concat": at(Concat(inputs=2 * (MAP,), gradient=True), 2),
    "normalisation": at(OnlineNorm(inputs=(MAP,), gradient=True), 2),
    "normalisation forward": at(OnlineNorm(inputs=(MAP,), gradient=False), 4),
    "bias of four lanes": at(Bias(inputs=(MAP,), gradient=True), 4),
    "loss": at(SoftCrossLoss(inputs=2 * (Shape(1, 1, 10),), gradient=True), 5),
    "im2col": (
        Im2col(inputs=(Shape(16, 16, 8),), kernel=(3, 3), stride=(1, 1), padding=4 * (1,), gradient=True),
        Parallelism(pi=2, po=6),
    ),
    "max pool": at(pool(MaxPool, gradient=True), 2),
    "average pool": at(pool(AvgPool, gradient=True), 2),
    "convolution": (conv((16, 16, 8), 16, 3, padding=1), parallel(4, 2, 2, 2, 2)),
    "first convolution": (conv((14, 14, 3), 16, 5, padding=2, gradient=False), parallel(1, 4, 7, 1, 4)),
    "convolution 1×1": (conv((8, 8, 32), 16, 1), parallel(8, 2, 1, 4, 2)),
    "depthwise": (conv((8, 8, 16), 16, 3, padding=1, groups=16), parallel(1, 4, 2, 2, 2)),
    "dense": (dense(128, 10), parallel(4, 5, 1, 1, 1)),
    "dense in DRAM": (dense(128, 16), parallel(4, 4, 1, 4, 2)),
}


@pytest.mark.parametrize("name", [*POINTS, *slow(*MORE)])
def test_luts_beside_operators_are_those_of_the_cost(name, monkeypatch):
    (layer, p), storage = (POINTS | MORE)[name], Storage.DRAM if "DRAM" in name else Storage.CHIP
    boxes = without_operators(monkeypatch)
    component = component_class(Stage(name, layer, p, storage=storage))(layer=layer, parallelism=p)
    area = mapped(emit_verilog(component, name="top"), boxes)
    stored = layer.resident(p) if layer.parameters and storage is Storage.CHIP else ()
    counted = own_luts(layer, p, storage) + ULTRASCALE.ram_luts((*layer.buffers(p, storage), *stored))
    assert counted == pytest.approx(area.luts + area.lutrams, rel=0.15)


def nodes():
    """One device's node, and of two the host's, which has three connections."""
    residual = EXAMPLES["residual"]
    away = {"conv2", "norm2", "add", "relu2"}
    part = PlacedNetwork(
        residual, tuple("b" if stage.name in away else "a" for stage in residual.stages)
    ).parts[0]
    sizes = {"rings": part.rings, "skews": part.skews, "gradient_skews": part.gradient_skews}
    return {
        "one": ClusterNode(network=EXAMPLES["tiny"]),
        "of two": ClusterNode(network=part.network, **sizes),
    }


@pytest.mark.parametrize("name", slow("one", "of two"))
def test_luts_of_a_node_beside_its_layers_are_those_of_the_cost(name, monkeypatch):
    node = nodes()[name]
    boxes, stages = without_operators(monkeypatch), node.network.stages
    verilog = emit_verilog(node, name="top")
    area = mapped(verilog, [*boxes, *re.findall(r"^module (top__stage\d+)\(", verilog, re.MULTILINE)])
    links = graph_contexts([stage.layer for stage in stages], [stage.sources for stage in stages])
    ends = [isinstance(stage.layer, (Egress, Ingress)) for stage in stages]
    counted = device_luts(ULTRASCALE, sum(ends))
    for stage, link, end in zip(stages, links, ends, strict=True):
        if not end:
            layer, p, storage = stage.layer, stage.parallelism, stage.storage
            counted += layer.logic(p, storage, ULTRASCALE) - own_luts(layer, p, storage)
            counted += ULTRASCALE.ram_luts((*layer.queues(p, storage), *link.queues(layer, p)))
            counted += logic_luts(ULTRASCALE, "fork", {"sum": link.sums * p.po})
    assert counted == pytest.approx(area.luts + area.lutrams, rel=0.05)


def own_luts(layer, p, storage):
    """What the component itself counts as logic."""
    return units_luts(ULTRASCALE, layer.logic_prices(storage), layer.logic_units(p))


def without_operators(monkeypatch):
    """From now on arrays of operators are elaborated empty; their names, once they are."""
    boxes = set()

    def leave_out(self, platform):
        boxes.add(module_name(self))
        return Module()

    for array in LaneArray, AdderArray:
        monkeypatch.setattr(array, "elaborate", leave_out)
    return boxes


def mapped(verilog, boxes):
    """Area of a module without those of these names."""
    return synthesise(verilog, "top", options="-uram", goal=Goal.AREA, blackboxes=sorted(boxes))
