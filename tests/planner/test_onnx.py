"""ONNX files as models: what nodes become, with onnx's own shape inference as the second opinion."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fanin.base.errors import InputError
from fanin.cnn.golden.network import GoldenNetwork
from fanin.planner.model.load import load_model
from fanin.planner.model.onnx_model import OPERATORS, load_onnx, onnx_weights
from fanin.planner.plan.network import unplanned
from tests.planner.onnx_net import Net, flattened

# expansion, output channels, how often, stride of the first (Sandler et al., CVPR 2018, table 2)
GROUPS = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


@pytest.fixture
def load(tmp_path):
    """Save a net and read it."""

    def run(net, *outputs, compared=True):
        path = tmp_path / "net.onnx"
        proto = net if isinstance(net, onnx.ModelProto) else net.proto(*outputs)
        onnx.save(proto, path)
        model = load_onnx(path)
        if compared:
            compare(proto, model)
        return model

    return run


def compare(proto, model):
    """Hold every layer's output against what onnx infers for its node."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for entry in copy.graph.input:
        batch = entry.type.tensor_type.shape.dim[0]
        batch.dim_value = batch.dim_value or 11
    for entry in copy.graph.output:
        entry.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True).graph
    inferred = {
        entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        for entry in (*graph.value_info, *graph.output)
    }
    seen = 0
    for node in graph.node:
        for name in (node.name.lstrip("/"), f"{node.name.lstrip('/')}/bias"):
            if name in model.by_name:
                shape = model.nodes[model.by_name[name]].layer.output
                _, *sizes = inferred[node.output[0]]
                assert sizes in ([shape.c, shape.h, shape.w], [shape.words]), node
                seen += 1
    assert seen == sum(node.layer.kind not in ("input", "output", "soft_cross_loss") for node in model.nodes)


def kinds(model):
    """All layers between input and loss."""
    first, *found, labels, loss, output = [node.layer.kind for node in model.nodes]
    assert [first, labels, loss, output] == ["input", "input", "soft_cross_loss", "output"]
    return " ".join(found)


def layers(model):
    return [(node.layer.kind, node.layer.output, node.layer.parameters) for node in model.nodes]


def mobilenet_v2(folded=False):
    """As torchvision's, at 224×224."""
    net = Net("N", 3, 224, 224, opset=13)
    zero, six = net.constant(0.0), net.constant(6.0)

    def step(x, inputs, outputs, kernel=1, stride=1, groups=1, clip=True):
        attributes = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "kernel_shape": [kernel] * 2}
        shape = (outputs, inputs // groups, kernel, kernel)
        x = net.conv(x, shape, folded, group=groups, dilations=[1, 1], **attributes)
        x = x if folded else net.bn(x, outputs)
        return net("Clip", x, zero, six) if clip else x

    x, c = step("x", 3, 32, 3, 2), 32
    for expansion, channels, repeats, first in GROUPS:
        for repeat in range(repeats):
            stride, wide, start = first if repeat == 0 else 1, expansion * c, x
            x = x if expansion == 1 else step(x, c, wide)
            x = step(x, wide, wide, 3, stride, wide)
            x = step(x, wide, channels, clip=False)
            x = net("Add", start, x) if stride == 1 and c == channels else x
            c = channels
    x = net("Flatten", net("GlobalAveragePool", step(x, c, 1280)), axis=1)
    net.gemm(x, 1280, 1000)
    return net


def test_mobilenet_v2_is_the_shipped_one(load):
    model, shipped = load(mobilenet_v2()), load_model("mobilenet_v2")
    assert layers(model) == layers(shipped)
    assert [node.sources for node in model.nodes] == [node.sources for node in shipped.nodes]
    assert model.parameters == shipped.parameters == 3487816
    assert model.name == "net"


def test_with_folded_normalisation_only_that_is_missing(load):
    expected = Counter(layer for layer in layers(load_model("mobilenet_v2")) if layer[0] != "online_norm")
    assert Counter(layers(load(mobilenet_v2(folded=True)))) == expected


def ended(net, x, channels):
    """Close a net of feature maps."""
    x = net("Flatten", net("GlobalAveragePool", x))
    return net.gemm(x, channels, 5)


def test_a_layer_has_its_nodes_name(load):
    net = Net("N", 3, 8, 8)
    x = net.conv("x", (4, 3, 3, 3), True, name="/features/0/Conv")
    x = net("BatchNormalization", x, *(net.weight(4) for _ in range(4)), name="features/1")
    x = net("Relu", x, name="conv1")
    x = net.conv(x, (4, 4, 1, 1), name="same")
    x = net("Relu", x, name="same")
    x = net("Relu", x, name="features/1/bias")
    x = net("Relu", x, name="x")
    x = net("GlobalAveragePool", x, name="two\nlines")
    x = net("Flatten", x, name="label_one_hot")
    net("Gemm", x, net.weight(4, 5), net.weight(5), outputs=["logits"], name="logits")
    assert " ".join(node.name for node in load(net, compared=False).nodes) == (
        "x features/0/Conv features/0/Conv/bias features/1 bias1 conv1 conv2 relu1 features/1/bias relu2 "
        "global_avg_pool1 dense1 bias2 label_one_hot soft_cross_loss1 logits"
    )


@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((17, 23), {}),
        ((17, 23), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((17, 23), {"pads": [0, 1, 2, 3], "strides": [3, 2], "kernel_shape": [5, 3]}),
        ((16, 16), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((17, 23), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
        ((17, 23), {"auto_pad": "VALID", "strides": [2, 3]}),
        ((17, 23), {"auto_pad": "NOTSET", "pads": [2, 2, 2, 2], "dilations": [1, 1]}),
    ],
)
@pytest.mark.parametrize(
    ("groups", "outputs", "kind"), [(1, 8, "conv"), (6, 6, "dwconv"), (2, 4, "conv"), (6, 12, "conv")]
)
def test_convolutions(load, size, attributes, groups, outputs, kind):
    net = Net("N", 6, *size)
    ended(net, net.conv("x", (outputs, 6 // groups, 5, 3), True, group=groups, **attributes), outputs)
    model = load(net)
    assert kinds(model) == f"{kind} bias global_avg_pool dense bias"
    assert [node.layer.parameters for node in model.nodes[1:3]] == [outputs * 6 // groups * 15, outputs]


def test_padding_is_top_left_bottom_right(load):
    for attributes, padding in (
        ({"pads": [1, 2, 3, 4]}, (1, 2, 3, 4)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 0, 2, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (2, 1, 1, 0)),
    ):
        net = Net("N", 3, 16, 16)
        ended(net, net.conv("x", (4, 3, 5, 3), **attributes), 4)
        assert load(net).nodes[1].layer.padding == padding


def test_one_channel_is_no_depthwise_convolution(load):
    net = Net("N", 1, 8, 8)
    ended(net, net.conv("x", (1, 1, 3, 3)), 1)
    assert kinds(load(net)) == "conv global_avg_pool dense bias"


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize("first", [False, True])
def test_a_residual_block(load, shape, first):
    net = Net("N", 3, 9, 9)
    start = net("Relu", net.bn(net.conv("x", (4, 3, 3, 3)), 4))
    x = net.conv(start, (4, 4, 3, 3), pads=[1, 1, 1, 1])
    x = net("InstanceNormalization", x, net.weight(4), net.weight(4))
    operands = [x, net.weight(*shape)]
    x = net("Add", *(reversed(operands) if first else operands))
    ended(net, net("Relu", net("Add", x, start)), 4)
    model = load(net)
    assert kinds(model) == (
        "conv online_norm bias relu conv online_norm bias bias add relu global_avg_pool dense bias"
    )
    assert model.nodes[9].sources == (8, 4)
    assert model.parameters == 4 * 27 + 4 + 4 * 36 + 4 + 4 + 4 * 5 + 5


@pytest.mark.parametrize("form", ["attributes", "initializers", "nodes", "identity"])
def test_clip_to_6_is_relu6(load, form):
    net = Net("N", 3, 8, 8, opset=10 if form == "attributes" else 13)
    limits, attributes = [], {}
    if form == "attributes":
        attributes = {"min": 0.0, "max": 6.0}
    elif form == "nodes":
        limits = [
            net("Constant", value_float=0.0),
            net("Constant", value=numpy_helper.from_array(np.float32(6))),
        ]
    else:
        limits = [net.constant(0.0), net.constant(6.0)]
        limits = [net("Identity", limit) for limit in limits] if form == "identity" else limits
    ended(net, net("Clip", net.conv("x", (4, 3, 3, 3)), *limits, **attributes), 4)
    assert kinds(load(net)) == "conv relu6 global_avg_pool dense bias"


def test_average_pool(load):
    for attributes, opset in (
        ({"kernel_shape": [3, 2]}, 7),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 17),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER", "count_include_pad": 1}, 19),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, 19),
    ):
        net = Net("N", 3, 16, 16, opset=opset)
        ended(net, net("AveragePool", net.conv("x", (4, 3, 1, 1)), **attributes), 4)
        assert kinds(load(net)) == "conv avg_pool global_avg_pool dense bias"


def test_max_pool_and_concatenated_channels(load):
    net = Net("N", 3, 16, 16)
    x = net("MaxPool", net.conv("x", (4, 3, 1, 1)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ended(net, net("Concat", x, net.conv(x, (6, 4, 1, 1)), axis=1), 10)
    model = load(net)
    assert kinds(model) == "conv max_pool conv concat global_avg_pool dense bias"
    assert [
        (node.layer.output.h, node.layer.output.c) for node in model.nodes if node.layer.kind == "concat"
    ] == [(8, 10)]


def test_weights_come_in_the_order_of_fanin(tmp_path):
    rng = np.random.default_rng(1)
    net = Net("N", 2, 3, 4)
    kernel, added = rng.normal(size=(6, 2, 3, 3)), rng.normal(size=6)
    x = net("Conv", "x", net.constant(kernel), net.constant(added), pads=[1, 1, 1, 1], name="c")
    matrix = rng.normal(size=(5, 72))
    net("Gemm", net("Flatten", x), net.constant(matrix), transB=1, name="d")
    onnx.save(net.proto(), tmp_path / "net.onnx")
    found = onnx_weights(tmp_path / "net.onnx")
    assert found["c"][2, 1, 1, 5] == np.float32(kernel[5, 1, 2, 1])
    assert np.array_equal(found["c/bias"], added.astype(np.float32))
    row, column, channel = 2, 3, 4
    word = (row * 4 + column) * 6 + channel
    assert found["d"][0, 0, word, 3] == np.float32(matrix[3, channel * 12 + row * 4 + column])


def test_folded_normalisation_is_noted_and_kept_normalisation_is_not(load):
    for renamed in (True, False):
        net = Net("N", 3, 8, 8)
        x = net.conv("x", (4, 3, 3, 3), name="c")
        if renamed:
            net.weights[0].name = net.nodes[0].input[1] = "onnx::Conv_17"
        else:
            net.nodes[0].metadata_props.add(key="namespace", value="0: torch.nn.modules.batchnorm.BatchNorm2d")
        ended(net, x, 4)
        (note,) = load(net).notes
        assert "batch normalisation is folded into c:" in note
    net = Net("N", 3, 8, 8)
    ended(net, net.bn(net.conv("x", (4, 3, 3, 3)), 4), 4)
    assert load(net).notes == ()


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("opset", "axes"), [(13, [2, 3]), (17, [-1, -2]), (18, [2, 3]), (18, [-1, 2])])
def test_mean_of_rows_and_columns(load, opset, axes, keepdims):
    net = Net("N", 3, 8, 8, opset=opset)
    x = net.conv("x", (4, 3, 3, 3))
    if opset < 18:
        x = net("ReduceMean", x, axes=axes, keepdims=keepdims)
    else:
        x = net("ReduceMean", x, net.constant(axes, np.int64), keepdims=keepdims)
    net.gemm(net("Flatten", x) if keepdims else x, 4, 5)
    assert kinds(load(net)) == "conv global_avg_pool dense bias"


@pytest.mark.parametrize("form", ["transB 0", "transB 1", "row", "no bias", "MatMul", "MatMul, row"])
def test_dense(load, form):
    net = Net("N", 12)
    if form == "transB 0":
        net("Gemm", "x", net.weight(12, 5), net.weight(5))
    elif form in ("transB 1", "row"):
        net("Gemm", "x", net.weight(5, 12), net.weight(*([1] if form == "row" else []), 5), transB=1, alpha=1.0)
    elif form == "no bias":
        net("Gemm", "x", net.weight(5, 12), transB=1)
    else:
        net("Add", net("MatMul", "x", net.weight(12, 5)), net.weight(*([1] if "row" in form else []), 5))
    model = load(net)
    assert kinds(model) == ("dense" if form == "no bias" else "dense bias")
    assert model.parameters == 60 + 5 * (form != "no bias")
    assert (model.nodes[-1].name, model.nodes[-3].name) == (net.nodes[-1].output[0], "label_one_hot")


@pytest.mark.parametrize("batch", ["N", 1, 32])
@pytest.mark.parametrize("form", ["Flatten", "view", [0, -1], [-1, 24], [32, -1], [32, 24], [0, 24]])
def test_what_flattens_is_no_layer(load, batch, form):
    net = Net(batch, 3, 2, 3)
    x = flattened(net, net.conv("x", (4, 3, 1, 1)), form)
    net.gemm(net("Relu", x), 24, 5)
    if form[0] == 32 and batch != 32:  # of one frame it would make many, or of many one
        with pytest.raises(InputError, match=r"Reshape\): makes \["):
            load(net)
        return
    assert kinds(load(net)) == "conv relu dense bias"


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze(load, opset):
    net = Net("N", 3, 8, 8, opset=opset)
    x = net("GlobalAveragePool", net.conv("x", (4, 3, 3, 3)))
    x = net("Squeeze", x, net.constant([2, 3], np.int64)) if opset == 13 else net("Squeeze", x, axes=[3])
    x = x if opset == 13 else net("Squeeze", x, axes=[-1])
    net.gemm(x, 4, 5)
    assert kinds(load(net)) == "conv global_avg_pool dense bias"


def test_the_loss_contains_a_softmax(load):
    for op, opset, attributes in (
        ("Softmax", 11, {}),
        ("Softmax", 13, {}),
        ("LogSoftmax", 17, {"axis": 1}),
        ("Softmax", 17, {"axis": -1}),
    ):
        net = Net("N", 12, opset=opset)
        net("Identity", net(op, net.gemm("x", 12, 5), **attributes))
        assert kinds(load(net)) == "dense bias"
    net = Net("N", 3, 8, 8)
    net("Flatten", net("Softmax", net("GlobalAveragePool", net.conv("x", (4, 3, 1, 1))), axis=1))
    assert kinds(load(net)) == "conv global_avg_pool"


def test_several_inputs(load):
    net = Net(left=("N", 3, 8, 8), right=(7, 3, 8, 8))
    x = net("Add", net.conv("left", (4, 3, 3, 3)), net.conv("right", (4, 3, 3, 3)))
    ended(net, x, 4)
    model = load(net, compared=False)  # with one batch for both
    assert kinds(model) == "input conv conv add global_avg_pool dense bias"
    assert model.nodes[4].sources == (2, 3)


def test_what_leads_to_no_output_is_no_part_of_the_model(load):
    net = Net("N", 12)
    x = net("Dropout", "x", outputs=["kept", "mask"])
    net("Not", "mask")
    net("Constant", value_float=0.0)
    assert kinds(load(net, net.gemm(x, 12, 5))) == "dense bias"


def test_weights_may_be_inputs_and_computed_of_constants(load):
    net = Net("N", 12)
    net("Gemm", "x", net("Transpose", net("Identity", net.weight(5, 12))), net.weight(5))
    proto = net.proto()
    proto.ir_version = 3
    proto.graph.input.extend(
        helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.dims) for w in proto.graph.initializer
    )
    assert kinds(load(proto, compared=False)) == "dense bias"


def test_what_the_file_says_of_shapes_is_not_needed(load):
    net = Net("N", 12)
    x = net.gemm("x", 12, 5)
    proto = net.proto()
    proto.graph.value_info.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, [3, 77]))
    assert kinds(load(proto, compared=False)) == "dense bias"


def test_the_page_lists_the_operators_that_are_read():
    page = (Path(__file__).parents[2] / "docs/reference/onnx.md").read_text()
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \|", page, re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(", ")) == sorted([*OPERATORS, "Constant"])


def test_the_golden_model_with_a_files_weights_computes_what_onnx_does(tmp_path):
    rng = np.random.default_rng(3)
    net = Net("N", 2, 8, 8)

    def conv(x, channels, outputs, kernel, groups=1, **attributes):
        weights = rng.normal(size=(outputs, channels // groups, kernel, kernel)) / kernel
        return net(
            "Conv", x, net.constant(weights), net.constant(rng.normal(size=outputs)), group=groups, **attributes
        )

    x = net("Relu", conv("x", 2, 4, 3, pads=[1, 1, 1, 1]))
    y = net("Clip", conv(x, 4, 4, 3, groups=4, pads=[1, 1, 1, 1]), net.constant(0), net.constant(6))
    y = net("Add", x, y)
    y = net("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    z = net("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = net("Concat", y, z, conv(x, 4, 3, 1, strides=[2, 2], groups=1), axis=1)
    y = net(
        "Gemm",
        net("Flatten", y),
        net.constant(rng.normal(size=(5, 11 * 16)) / 11),
        net.constant(rng.normal(size=5)),
        transB=1,
    )
    net("Softmax", y, axis=1)
    proto = net.proto()
    onnx.save(proto, tmp_path / "net.onnx")
    network = unplanned(load_onnx(tmp_path / "net.onnx"))
    states = [stage.layer.zero_state() for stage in network.stages]
    weights = onnx_weights(tmp_path / "net.onnx")
    for stage, state in zip(network.stages, states, strict=True):
        assert (stage.name in weights) == ("weights" in state)
        if stage.name in weights:
            state["weights"] = weights[stage.name].reshape(state["weights"].shape)
    images = rng.normal(size=(6, 8, 8, 2)).astype(np.float32)
    (right,) = ReferenceEvaluator(proto).run(None, {"x": images.transpose(0, 3, 1, 2)})
    found = GoldenNetwork(network, states).evaluate(images)
    assert np.abs(found.reshape(6, 5) - right).max() < 1e-5
