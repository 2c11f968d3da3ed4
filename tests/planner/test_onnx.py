"""ONNX files as models: what nodes become, onnx's own shape inference as the second opinion, and refusals."""

import random
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fanin.errors import InputError
from fanin.planner.load import load_model
from fanin.planner.onnx_model import load_onnx

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


class Net:
    """Writes a graph node by node. Outputs are called after their nodes."""

    def __init__(self, *shape, opset=17, **inputs):
        self.opset = opset
        self.inputs = inputs or {"x": shape or ("N", 3, 16, 16)}
        self.nodes, self.weights, self.outputs = [], [], []

    def __call__(self, op, *inputs, name=None, outputs=None, **attributes):
        name = f"/{op}_{len(self.nodes)}" if name is None else name
        outputs = outputs or [f"{name}_out_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def constant(self, value, kind=np.float32):
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape):
        return self.constant(np.zeros(shape))

    def bn(self, x, c):
        return self("BatchNormalization", x, *(self.weight(c) for _ in range(4)))

    def conv(self, x, shape, bias=False, **attributes):
        weights = [self.weight(*shape)] + ([self.weight(shape[0])] if bias else [])
        return self("Conv", x, *weights, **attributes)

    def gemm(self, x, inputs, outputs):
        return self("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def proto(self, *outputs, **more):
        outputs = outputs or [self.nodes[-1].output[0]]
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in self.inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "classes"]) for n in outputs],
            self.weights,
        )  # fmt: skip
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("custom", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8, **more)


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


@pytest.fixture
def refuse(tmp_path):
    """The one line that a net is refused with, without the file."""

    def run(net, *outputs):
        path = tmp_path / "net.onnx"
        onnx.save(net if isinstance(net, onnx.ModelProto) else net.proto(*outputs), path)
        with pytest.raises(InputError) as caught:
            load_onnx(path)
        text = str(caught.value)
        assert "\n" not in text
        assert text.startswith(f"{path}: ")
        return text.removeprefix(f"{path}: ")

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
    assert [node.name for node in load(net, compared=False).nodes] == [
        "x", "features/0/Conv", "features/0/Conv/bias", "features/1", "bias1", "conv1", "conv2", "relu1",
        "features/1/bias", "relu2", "global_avg_pool1", "dense1", "bias2",
        "label_one_hot", "soft_cross_loss1", "logits",
    ]  # fmt: skip


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
        ({"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, 19),
        ({"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, 19),
    ):
        net = Net("N", 3, 16, 16, opset=opset)
        ended(net, net("AveragePool", net.conv("x", (4, 3, 1, 1)), **attributes), 4)
        assert kinds(load(net)) == "conv avg_pool global_avg_pool dense bias"


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


def flattened(net, x, form):
    """[N, 4, 2, 3] as [N, 24], in the forms that there are."""
    if form == "view":  # x.view(x.size(0), -1)
        size = net("Gather", net("Shape", x), net.constant(0, np.int64), axis=0)
        size = net("Unsqueeze", size, net.constant([0], np.int64))
        return net("Reshape", x, net("Concat", size, net("Constant", value_ints=[-1]), axis=0))
    if form == "Flatten":
        return net("Flatten", net("Identity", net("Dropout", x)), axis=-3)
    return net("Reshape", x, net.constant(form, np.int64))


@pytest.mark.parametrize("batch", ["N", 1, 32])
@pytest.mark.parametrize("form", ["Flatten", "view", [0, -1], [-1, 24], [32, -1], [32, 24], [0, 24]])
def test_what_flattens_is_no_layer(load, refuse, batch, form):
    net = Net(batch, 3, 2, 3)
    x = flattened(net, net.conv("x", (4, 3, 1, 1)), form)
    net.gemm(net("Relu", x), 24, 5)
    if form[0] == 32 and batch != 32:
        assert "Reshape): makes [" in refuse(net)  # of one frame it would make many, or of many one
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


def conv_net(*shape, **attributes):
    net = Net("N", 6, 16, 16)
    net.conv("x", shape, name="c", **attributes)
    return net


def image_net(op, *weights, opset=17, **attributes):
    net = Net("N", 6, 16, 16, opset=opset)
    net(op, "x", *(net.weight(*w) if isinstance(w, tuple) else w for w in weights), name="c", **attributes)
    return net


def clip_net(*limits):
    net = Net("N", 6, 16, 16)
    net("Clip", "x", *(limit if limit == "" else net.constant(limit) for limit in limits), name="c")
    return net


def row_net(op, *weights, **attributes):
    net = Net("N", 12)
    net(op, "x", *(net.weight(*w) if isinstance(w, tuple) else w for w in weights), name="c", **attributes)
    return net


def behind_softmax():
    net = Net("N", 12)
    net("Relu", net("Softmax", "x"), name="c")
    return net


def mean_net(axes, **attributes):
    net = Net("N", 6, 6, 16, opset=18)
    net("ReduceMean", "x", *([] if axes is None else [net.constant(axes, np.int64)]), name="c", **attributes)
    return net


def reshape_net(*sizes):
    net = Net("N", 6, 16, 16)
    net("Reshape", "x", net.constant(sizes, np.int64), name="c")
    return net


def after_flatten(op, *weights, size=4, **attributes):
    net = Net("N", 6, size, size)
    x = net("Flatten", "x")
    net(op, x, *(net.weight(*w) for w in weights), name="c", **attributes)
    return net


def two_tensors(op, **attributes):
    net = Net("N", 6, 16, 16)
    net(op, net("Relu", "x"), net("GlobalAveragePool", "x"), name="c", **attributes)
    return net


def second_output():
    net = Net("N", 6, 16, 16)
    net("Dropout", "x", outputs=["kept", "mask"], name="d")
    net("Relu", "mask", name="c")
    return net


def constant_first():
    net = Net("N", 12)
    net("MatMul", net.weight(5, 12), "x", name="c")
    return net


@pytest.mark.parametrize(
    ("net", "cause"),
    [
        (image_net("MaxPool", kernel_shape=[2, 2]), "is not supported; what is: Add, AveragePool, Batch"),
        (conv_net(4, 6, 3, 3, dilations=[2, 2]), "dilations [2, 2] are not supported"),
        (conv_net(4, 6, 3), "its weights are [4, 6, 3]; only two-dimensional convolution is supported"),
        (conv_net(4, 6, 3, 3, 3), "its weights are [4, 6, 3, 3, 3]; only two-dim"),
        (conv_net(4, 3, 3, 3), "its weights are [4, 3, 3, 3] in 1 groups; its input is [batch, 6, 16, 16]"),
        (conv_net(4, 6, 3, 3, group=0), "its weights are [4, 6, 3, 3] in 0 groups"),
        (conv_net(4, 2, 3, 3, group=3), "3 groups do not divide 6 input and 4 output channels"),
        (conv_net(4, 6, 3, 3, kernel_shape=[5, 5]), "its weights are [4, 6, 3, 3]; kernel_shape is [5, 5]"),
        (conv_net(4, 6, 17, 3), "a window of 17×3 does not fit 16×16 (padding included)"),
        (conv_net(4, 6, 3, 3, strides=[0, 1]), "stride must be an integer in 1…1048576, not 0"),
        (conv_net(4, 6, 3, 3, strides=[1]), "stride must be one number or two, not [1]"),
        (conv_net(4, 6, 3, 3, pads=[1, 1]), "pads [1, 1] are not supported"),
        (conv_net(4, 6, 3, 3, pads=[1, 1, 1, -1]), "pads [1, 1, 1, -1] are not supported"),
        (conv_net(4, 6, 3, 3, pads=[2**60] * 4), "vertical must be an integer in 1…1048576, not 23"),
        (conv_net(4, 6, 3, 3, auto_pad="SAME"), "auto_pad b'SAME' is none of ONNX's"),
        (image_net("Conv", (4, 6, 3, 3), (3,)), "[3, 1, 1] is no bias by channel of [batch, 4, 14, 14]"),
        (image_net("Conv", "x"), "its input 'x' must be a constant"),
        (image_net("BatchNormalization", (5,), (6,), (6,), (6,)), "its scale is [5]; its input is [batch, 6, "),
        (image_net("BatchNormalization", (6,), (1,), (6,), (6,)), "[1, 1, 1] is no bias by channel of"),
        (image_net("AveragePool", kernel_shape=[17, 1]), "a window of 17×1 does not fit 16×16"),
        (image_net("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), "ceil_mode is not supp"),
        (image_net("AveragePool", opset=19, kernel_shape=[3, 3], dilations=[2, 2]), "dilations [2, 2] are"),
        (clip_net(), "its limits are []; only [0, 6], which is ReLU6, is supported"),
        (clip_net(0.0), "its limits are [0.0]; only [0, 6]"),
        (clip_net("", 6.0), "its limits are [6.0]; only [0, 6]"),
        (clip_net(0.0, 1.0), "its limits are [0.0, 1.0]; only"),
        (image_net("Clip", "x"), "its input 'x' must be numbers in the file"),
        (image_net("Add", (16,)), "[16] is no bias by channel of [batch, 6, 16, 16]"),
        (image_net("Add", ()), "[] is no bias by channel of"),
        (image_net("Add", (2, 6, 1, 1)), "[2, 6, 1, 1] is no bias by channel of"),
        (image_net("Add", (6, 16, 16)), "[6, 16, 16] is no bias by channel of"),
        (two_tensors("Add"), "its inputs are [batch, 6, 16, 16] and [batch, 6, 1, 1]; they must not differ"),
        (two_tensors("MatMul"), "must be a constant"),
        (mean_net([1, 3]), "its axes are [1.0, 3.0]; only [2, 3], rows and columns, are supported"),
        (mean_net([2]), "its axes are [2.0]; only [2, 3]"),
        (mean_net(None), "its axes are []; only [2, 3]"),
        (row_net("Gemm", (12, 5), alpha=0.5), "alpha of 0.5 is not supported"),
        (row_net("Gemm", (12, 5), (5,), beta=2.0), "beta of 2 is not supported"),
        (row_net("Gemm", (12, 5), transA=1), "transA of 1 is not supported"),
        (row_net("Gemm", (5, 12)), "its weights take [5]; its input is [batch, 12]"),
        (row_net("Gemm", (12, 5), (1,)), "[1] is no bias by channel of [batch, 5]"),
        (row_net("Gemm", (12, 5), (3, 5)), "[3, 5] is no bias by channel of [batch, 5]"),
        (row_net("MatMul", (3, 12, 5)), "its weights take [3, 12]; its input is"),
        (image_net("MatMul", (16, 5)), "its weights take [16]; its input is [batch, 6, 16, 16]"),
        (constant_first(), "its input 'w0' is a constant"),
        (
            image_net("Flatten", axis=2),
            "makes [47514, 256] of [batch, 6, 16, 16]; only flattening to [batch, 1536]",
        ),
        (image_net("Flatten", axis=0), "makes [1, 12"),
        (reshape_net(0, 6, -1), "makes [batch, 6, 256] of"),
        (reshape_net(0, 16, 16, 6), "makes [batch, 16, 16, 6] of"),
        (reshape_net(-1), "makes [121"),
        (reshape_net(1, -1), "makes [1, 12"),
        (image_net("Reshape", "x"), "makes ["),
        (row_net("Conv", (4, 12, 3, 3)), "its input is [batch, 12], not [batch, channels, rows, columns]"),
        (after_flatten("BatchNormalization", *4 * [(96,)]), "its scale is [96]; its input is [batch, 96]"),
        (after_flatten("Add", (96,)), "[96] is no bias by channel of [batch, 96]"),
        (after_flatten("GlobalAveragePool"), "its input is [batch, 96], not [batch, channels, rows, columns]"),
        (
            image_net("Softmax", axis=1),
            "is over axis 1 of [batch, 6, 16, 16]; only over all classes of a frame",
        ),
        (row_net("Softmax", axis=0), "is over axis 0 of"),
        (row_net("Softmax", axis=-2), "is over axis -2 of"),
        (behind_softmax(), "follows a softmax, which may only stand at the end"),
        (second_output(), "its input 'mask' is no first output of a node"),
    ],
)
def test_a_node_that_is_refused(refuse, net, cause):
    text = refuse(net)
    assert text.startswith(f"node c ({net.nodes[-1].op_type}): ")
    assert cause in text


def test_a_node_of_a_foreign_domain(refuse):
    net = Net("N", 12)
    net("Relu", "x", domain="custom", name="")
    assert refuse(net).startswith("node _out_0 (custom.Relu): is not supported; what is: Add, ")


@pytest.mark.parametrize(
    ("net", "cause"),
    [
        (Net("N", 3, "h", 16), "input x: is [batch, 3, ?, 16]; all but the batch must be known, in 1…1048576"),
        (Net("N", "c"), "input x: is [batch, ?]; all but"),
        (Net("N", 3, 8, 1 << 21), "input x: is [batch, 3, 8, 2097152]; all but"),
        (Net("N", 3, 8), "input x: must be floats, [batch, channels, rows, columns] or [batch, channels]"),
        (Net("N", 3, 8, 8, 8), "input x: must be floats, "),
        (Net("N", 3, 8, 8), "its output y is 8×8×3; the loss takes 1×1×classes"),
        (Net(x=(2, 3), z=(4, 3)), "its inputs have batches of 2 and 4"),
        (Net(x=("N", 3), z=("N", 3)), "z leads to no output"),
        (Net(label_one_hot=("N", 3), x=("N", 3)), "there are two layers called label_one_hot"),
    ],
)
def test_inputs_and_outputs_that_are_refused(refuse, net, cause):
    net("Relu", "x", outputs=["y"])
    assert cause in refuse(net)


def test_inputs_that_are_no_floats(refuse):
    proto = row_net("Relu").proto()
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    assert refuse(proto).startswith("input x: must be floats")
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(proto.graph.output[0].type))
    assert refuse(proto).startswith("input x: must be floats")


def test_outputs_that_are_refused(refuse):
    net = Net("N", 12)
    first, second = net("Relu", "x"), net("Relu", "x")
    assert refuse(net, first, second) == f"has 2 outputs ({first}, {second}); the loss takes one"
    net = Net("N", 12)
    assert "does not depend on an input" in refuse(net, net("Identity", net.weight(1, 12)))
    assert refuse(Net("N", 12), "x") == "there are two layers called x"


def test_a_network_without_inputs(refuse):
    net = Net()
    net("Relu", "x", name="c")
    proto = net.proto()
    del proto.graph.input[:]
    assert "is no valid ONNX model: Nodes in a graph must be topologically sorted" in refuse(proto)


def test_a_version_or_function_that_is_not_supported(refuse):
    net = Net("N", 12, opset=6)
    net("Relu", "x")
    assert refuse(net).startswith("is of opset 6; 7…")
    net.opset = 1000
    assert refuse(net).startswith("is of opset 1000; 7…")
    net.opset = 17
    body = helper.make_node("F", ["a"], ["b"], domain="custom")
    function = helper.make_function("custom", "F", ["a"], ["b"], [body], [helper.make_opsetid("custom", 1)])
    assert refuse(net.proto(functions=[function])).startswith("has local functions; onnx.inliner")


def _refused_file(path):
    with pytest.raises(InputError) as caught:
        load_model(str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_weights_in_a_file_of_their_own(tmp_path):
    net, path = Net("N", 12), tmp_path / "net.onnx"
    net.gemm("x", 12, 500)
    onnx.save(net.proto(), path, save_as_external_data=True, location="weights", size_threshold=0)
    assert load_model(str(path)).parameters == 6500
    (tmp_path / "weights").write_bytes(b"short")
    _refused_file(path)
    (tmp_path / "weights").unlink()
    assert "weights" in _refused_file(path)


@pytest.mark.parametrize("content", [b"", b"no model at all", bytes(range(256)), b"\n\x05" + bytes(5)])
def test_a_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    assert _refused_file(path).startswith("is no valid ONNX model: ")


def test_a_file_that_cannot_be_read(tmp_path):
    assert _refused_file(tmp_path / "none.onnx") == "no such file"
    with pytest.raises(InputError, match="No such file or directory"):
        load_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="Is a directory"):
        load_onnx(tmp_path)


def _said_of(path):
    try:
        load_onnx(path)
    except InputError as error:
        return str(error)
    return ""


def test_any_damage_is_either_harmless_or_refused(tmp_path):
    net = Net("N", 3, 9, 9)
    x = net("Relu", net.bn(net.conv("x", (4, 3, 3, 3), True, strides=[2, 2], pads=[1, 1, 1, 1]), 4))
    x = net("Add", net("Clip", x, net.constant(0.0), net.constant(6.0)), x)
    net("Softmax", net.gemm(flattened(net, net("AveragePool", x, kernel_shape=[3, 3]), "view"), 36, 5))
    whole, path, rng, outcomes = (
        net.proto().SerializeToString(),
        tmp_path / "net.onnx",
        random.Random(1),
        Counter(),
    )
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.randrange(len(damaged)) if rng.random() < 0.1 else None])
        said = _said_of(path)
        assert said == "" or (said.startswith(f"{path}: ") and len(said.splitlines()) == 1)
        outcomes["refused" if said else "net"] += 1
    assert min(outcomes["net"], outcomes["refused"]) > 50, outcomes
