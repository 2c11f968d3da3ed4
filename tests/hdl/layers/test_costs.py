"""Operators and memories of components, beside what the planner counts."""

import pytest
from amaranth.back import rtlil

from fanin.cnn.facts import Stage
from fanin.cnn.layers import add, avg_pool, bias, concat, global_avg_pool, im2col, max_pool, online_norm, relu
from fanin.cnn.layers.layer import REUSE, Parallelism, Shape, Storage
from fanin.cnn.layers.port import DISTRIBUTED_DEPTH
from fanin.cnn.layers.schedule import LEAVE_LATENCY, Way
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss, levels
from fanin.cnn.memory import Frames, Ring, SpilledParameters, StoreConfig
from fanin.hdl.area import read_rtlil
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.layers.add import Add
from fanin.hdl.layers.avg_pool import AvgPool
from fanin.hdl.layers.bias import Bias
from fanin.hdl.layers.components import component_class
from fanin.hdl.layers.concat import Concat
from fanin.hdl.layers.convolution import Convolution
from fanin.hdl.layers.fold import Fold
from fanin.hdl.layers.forward import forward_trees
from fanin.hdl.layers.global_pool import GlobalAvgPool
from fanin.hdl.layers.gradient_rows import GradientRows
from fanin.hdl.layers.im2col import Im2col
from fanin.hdl.layers.input_gradient import input_gradient_trees
from fanin.hdl.layers.lines import Lines, Results
from fanin.hdl.layers.max_pool import MaxPool
from fanin.hdl.layers.online_norm import OnlineNorm
from fanin.hdl.layers.places import WindowPlaces
from fanin.hdl.layers.relu import Relu
from fanin.hdl.layers.softmax_loss import SoftmaxLoss
from fanin.hdl.layers.store import Store
from fanin.hdl.layers.streamed_dense import StreamedDense
from fanin.hdl.stream import fifo
from tests.fanin.cnn.layers.small import other_layers
from tests.hdl.layers.convolutions import conv, dense
from tests.hdl.layers.operators import check_cost

CONVOLUTIONS = {
    "3×3": (conv((6, 8, 4), 6, 3, padding=1), Parallelism(pic=2, poc=3, ph=4)),
    "stride 2": (conv((8, 8, 3), 4, 3, stride=2, padding=(0, 0, 1, 1)), Parallelism(pic=3, poc=2, ph=2)),
    "5×5, first": (conv((9, 9, 3), 4, 5, stride=2, padding=2, gradient=False), Parallelism(pic=1, poc=4)),
    "1×1": (conv((4, 6, 8), 12, 1), Parallelism(pic=4, poc=3, ph=2)),
    "groups": (conv((5, 5, 8), 4, 3, groups=2), Parallelism(pic=2, poc=2, ph=3)),
    "depthwise": (conv((6, 6, 8), 8, 3, padding=1, groups=8), Parallelism(poc=4, ph=2)),
    "dense": (dense(40, 10), Parallelism(pic=5, poc=2)),
    "dense, first": (dense(24, 6, gradient=False), Parallelism(pic=4, poc=3)),
}
convolutions = pytest.mark.parametrize(("layer", "p"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)


@convolutions
def test_a_convolution_is_made_of_what_it_costs(layer, p, monkeypatch):
    check_cost(Convolution(layer=layer, parallelism=layer.with_streams(p)), monkeypatch)


@pytest.mark.parametrize("gradient", [True, False])
def test_a_dense_layer_without_its_parameters_is_made_of_what_it_costs(gradient, monkeypatch):
    layer = dense(60, 12, gradient=gradient)
    p = layer.with_streams(Parallelism(pic=5, poc=2))
    check_cost(StreamedDense(layer=layer, parallelism=p), monkeypatch, Storage.DRAM)


@convolutions
def test_latencies_are_those_that_its_rings_are_made_for(layer, p):
    schedule = layer.schedule(p)
    for way, trees in ((Way.FORWARD, forward_trees), (Way.INPUT_GRADIENT, input_gradient_trees)):
        depth = levels(len(trees(schedule)[0]))
        products = FP32Multiplier.LATENCY + FP32Adder.LATENCY * depth
        assert schedule.term_latency(way) == Lines.LATENCY + products
    assert Fold.LATENCY == REUSE
    assert GradientRows.LATENCY - WindowPlaces.LATENCY == LEAVE_LATENCY >= Results.LATENCY + 2


SHAPE = {"inputs": (Shape(6, 5, 6),), "gradient": True}
WINDOW = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1)}
OTHERS = {
    "bias": (Bias, bias.Bias(**SHAPE)),
    "relu": (Relu, relu.Relu(**SHAPE)),
    "add": (Add, add.Add(**SHAPE | {"inputs": 2 * SHAPE["inputs"]})),
    "concat": (Concat, concat.Concat(**SHAPE | {"inputs": 2 * SHAPE["inputs"]})),
    "online norm": (OnlineNorm, online_norm.OnlineNorm(**SHAPE)),
    "max pool": (MaxPool, max_pool.MaxPool(**SHAPE, **WINDOW)),
    "max pool, first": (MaxPool, max_pool.MaxPool(**SHAPE | {"gradient": False}, **WINDOW)),
    "avg pool": (AvgPool, avg_pool.AvgPool(**SHAPE, **WINDOW)),
    "avg pool, first": (AvgPool, avg_pool.AvgPool(**SHAPE | {"gradient": False}, **WINDOW)),
    "global pool": (GlobalAvgPool, global_avg_pool.GlobalAvgPool(**SHAPE)),
    "im2col": (Im2col, im2col.Im2col(**SHAPE, **WINDOW)),
    "im2col, first": (Im2col, im2col.Im2col(**SHAPE | {"gradient": False}, **WINDOW)),
    "loss": (SoftmaxLoss, SoftCrossLoss(inputs=2 * (Shape(1, 1, 6),), gradient=True)),
}
_HELD = [layer for layer, _ in CONVOLUTIONS.values()] + [layer for _, layer in OTHERS.values()]
OTHERS |= {
    kind: (component_class(Stage(kind, layer, Parallelism())), layer)
    for kind, layer in other_layers(_HELD, SHAPE["inputs"][0]).items()
}


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("made", "layer"), OTHERS.values(), ids=OTHERS)
def test_other_layers_are_made_of_what_they_cost(made, layer, lanes, monkeypatch):
    check_cost(made(layer=layer, parallelism=Parallelism(pi=lanes, po=lanes)), monkeypatch)


def test_rows_of_im2col_leave_as_late_as_its_ring_is_made_for():
    assert im2col.GRADIENT_LATENCY == WindowPlaces.LATENCY + GradientRows.LATENCY


@pytest.mark.parametrize("lanes", [1, 6, 24])
def test_what_is_saved_waits_in_queues_that_are_counted(lanes):
    layer = conv((4, 4, lanes), lanes, 3)
    ring = Ring(Frames(layer.saved_words, lanes), capacity=3, address=0)
    check_queues(layer, Parallelism(pi=lanes), Storage.CHIP, StoreConfig(rings=(ring,)))
    assert DISTRIBUTED_DEPTH == fifo.DISTRIBUTED_DEPTH


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("lanes", [1, 4])
def test_parameters_in_memory_wait_in_queues_that_are_counted(gradient, lanes):
    layer, p = dense(16, 8, gradient=gradient), Parallelism(pic=2, poc=2 * lanes, pi=2)
    ring = Ring(Frames(layer.saved_words, p.pi), capacity=3, address=0)
    weights = Frames(layer.parameters, layer.parameter_width(p))
    spilled = SpilledParameters(weights, weights=1 << 12, velocities=1 << 13, gradient=gradient)
    check_queues(layer, p, Storage.DRAM, StoreConfig(rings=(ring,), spilled=(spilled,)))


def check_queues(layer, p, storage, config):
    """Assert that a store has the queues that its one layer counts."""
    modules = read_rtlil(rtlil.convert(Store(config=config)))
    there = [
        (memory.width, memory.depth, memory.clocked)
        for module in modules.values()
        for memory in module.memories.values()
        if memory.width == 512
    ]
    queues = layer.queues(p, storage)
    assert sorted(there) == sorted((queue.width, queue.depth, queue.clocked) for queue in queues)
