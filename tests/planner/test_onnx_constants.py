"""Constants of ONNX files behind nodes: limits, axes and weights that exporters cast or transpose."""

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from fanin.base.errors import InputError
from fanin.cnn.layers.relu6 import Relu6
from fanin.planner.model.onnx_model import load_onnx, onnx_weights
from tests.planner.onnx_net import Net


@pytest.fixture
def saved(tmp_path):
    def save(net):
        path = tmp_path / "net.onnx"
        onnx.save(net.proto(), path)
        return path

    return save


def cast(net, value, kind):
    """A number of 64 bits, as PyTorch's exporters write Python's, behind a Cast."""
    return net("Cast", net.constant(value, kind), to=TensorProto.FLOAT)


def test_limits_and_axes_may_be_computed(saved):
    net = Net("N", 3, 8, 8, opset=18)
    x = net.conv("x", (4, 3, 3, 3))
    x = net("Clip", x, cast(net, 0, np.int64), net("CastLike", net.constant(6, np.int64), net.weight(1)))
    axes = net("Concat", net.constant([2], np.int64), net("Neg", net.constant([1], np.int64)), axis=0)
    net.gemm(net("ReduceMean", x, axes, keepdims=0), 4, 2)
    model = load_onnx(saved(net))
    assert any(isinstance(node.layer, Relu6) for node in model.nodes)
    assert model.notes == ()


@pytest.mark.parametrize("form", ["plain", "Reshape", "Transpose", "Cast", "chain"])
def test_weights_are_those_that_reach_the_node(saved, form):
    """A dense layer of a map of two channels and 2 × 3; fanin's order is row, column, channel."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((12, 5)).astype(np.float32)
    net = Net("N", 2, 2, 3)
    if form == "plain":
        name = net.constant(weights)
    elif form == "Reshape":
        name = net("Reshape", net.constant(weights.reshape(2, 6, 5)), net.constant([12, 5], np.int64))
    elif form == "Transpose":
        name = net("Transpose", net.constant(weights.T.copy()), perm=[1, 0])
    elif form == "Cast":
        name = net("Cast", net.constant(weights, np.float64), to=TensorProto.FLOAT)
    else:
        flat = net("Unsqueeze", net.constant(weights.T.reshape(-1)), net.constant([0], np.int64))
        square = net("Reshape", flat, net.constant([5, -1], np.int64))
        name = net("Identity", net("Transpose", square))
    net("MatMul", net("Flatten", "x"), name)
    path = saved(net)
    ((_, found),) = onnx_weights(path).items()
    expected = weights.reshape(2, 2, 3, 5).transpose(1, 2, 0, 3).reshape(1, 1, 12, 5)
    assert (found == expected).all()
    assert load_onnx(path).notes == ()


def test_weights_that_are_not_evaluated_are_noted(saved):
    net = Net("N", 4)
    name = net("Sin", net.constant(np.ones((4, 2))))
    net("MatMul", "x", name)
    path = saved(net)
    (note,) = load_onnx(path).notes
    assert f"{name} is computed by nodes that are not evaluated" in note
    assert "begins with random weights" in note
    assert onnx_weights(path) == {}


def test_a_constant_of_two_layers_is_noted(saved):
    net = Net("N", 3, 8, 8)
    shared = net.weight(3, 3, 1, 1)
    x = net("Conv", net("Relu", net("Conv", "x", shared)), shared)
    net.gemm(net("Flatten", x), 192, 2)
    model = load_onnx(saved(net))
    first, second = (node.name for node in model.nodes if "Conv" in node.name)
    (note,) = model.notes
    assert note.endswith(f": {shared} is shared by {first} and {second}: each trains weights of its own")


def test_what_pytorchs_newer_exporter_writes(saved):
    """A bias of zeros by Expand, limits like a feature map, a shape by Concat, axes by Reshape."""
    net = Net(1, 3, 8, 8, opset=18)
    weights = net.constant(np.random.default_rng(2).standard_normal((4, 3, 3, 3)))
    size = net("Expand", net("Shape", weights, start=0, end=1), net("Constant", value_ints=[1]))
    zero = net("CastLike", net("Constant", value_float=0.0), "x")
    y = net("Conv", "x", weights, net("Expand", zero, size), kernel_shape=[3, 3])
    limits = [net("CastLike", net("Constant", value_int=limit), y) for limit in (0, 6)]
    axes = net("Reshape", net.constant([-1, -2], np.int64), net("Constant", value_ints=[-1]))
    y = net("ReduceMean", net("Clip", y, *limits), axes, keepdims=1)
    shape = net("Concat", net("Constant", value_ints=[1]), net("Constant", value_ints=[-1]), axis=0)
    net.gemm(net("Reshape", y, shape, allowzero=1), 4, 2)
    path = saved(net)
    kinds = [type(node.layer).__name__ for node in load_onnx(path).nodes]
    assert kinds[:6] == ["Input", "Conv", "Bias", "Relu6", "GlobalAvgPool", "Dense"]
    assert (onnx_weights(path)[load_onnx(path).nodes[2].name] == 0).all()


def _doubled(net, value):
    """2^36 times the value, by 36 nodes."""
    for _ in range(36):
        value = net("Concat", value, value, axis=0)
    return value


BEYOND = {
    "Expand": lambda net: net("Expand", net.constant([1.0]), net.constant([1 << 20, 1 << 20], np.int64)),
    "Mul": lambda net: net("Mul", net.constant(np.ones((1 << 14, 1))), net.constant(np.ones((1, 1 << 14)))),
    "Gather": lambda net: net(
        "Gather", net.constant(np.ones((1, 1 << 14))), net.constant(np.zeros(1 << 14), np.int64), axis=0
    ),
    "Concat": lambda net: _doubled(net, net.constant([1.0])),
    "Shape": lambda net: _doubled(net, net("Shape", "x")),
}


@pytest.mark.parametrize("kind", list(BEYOND))
def test_a_constant_beyond_the_bound_is_not_evaluated(saved, kind):
    net = Net("N", 4)
    net("MatMul", "x", BEYOND[kind](net))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"its weights take|joins .* words, more than"):
            load_onnx(saved(net))
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()
