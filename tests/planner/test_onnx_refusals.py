"""ONNX files that are refused: node, cause, one line."""

import contextlib
import os
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fanin.base.errors import InputError
from fanin.planner.model import onnx_file
from fanin.planner.model.load import load_model
from fanin.planner.model.onnx_external import external_files
from fanin.planner.model.onnx_model import load_onnx
from tests.planner.onnx_net import Net, flattened


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


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x5b\x0a\x00"], ids=["node", "group"])
def test_very_many_messages_take_no_memory(tmp_path, field):
    """protobuf takes 400 MiB for a million empty nodes. A group is a field that no kind of ONNX has."""
    graph, path = field * 1_000_000, tmp_path / "net.onnx"
    begin, size = b"\x3a", len(graph)  # field 7 of a model, and its size to base 128
    while size:
        begin, size = begin + bytes([size & 127 | (size > 127) << 7]), size >> 7
    path.write_bytes(begin + graph)
    causes = r"has more than 262,144 nodes, attributes,|has a field of kind 3, which ONNX does not have"
    for read in load_onnx, external_files:
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match=causes) if read is load_onnx else contextlib.nullcontext():
                read(path)
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()


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
        (image_net("LpPool", kernel_shape=[2, 2]), "is not supported; supported are Add, AveragePool, Batch"),
        (image_net("AveragePool", kernel_shape=[2, 2], pads=[1, 1, 1, 1]), "count_include_pad must be 1 where"),
        (image_net("Concat", "x", "x", axis=2), "is over axis 2; only channels, axis 1"),
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
        (conv_net(4, 6, 3, 3, auto_pad="SAME"), "auto_pad b'SAME' is not one of ONNX's values"),
        (image_net("Conv", (4, 6, 3, 3), (3,)), "[3, 1, 1] is not a bias by channel of [batch, 4, 14, 14]"),
        (image_net("Conv", "x"), "its input 'x' must be a constant"),
        (image_net("BatchNormalization", (5,), (6,), (6,), (6,)), "its scale is [5]; its input is [batch, 6, "),
        (image_net("BatchNormalization", (6,), (1,), (6,), (6,)), "[1, 1, 1] is not a bias by channel of"),
        (image_net("AveragePool", kernel_shape=[17, 1]), "a window of 17×1 does not fit 16×16"),
        (image_net("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), "ceil_mode is not supp"),
        (image_net("AveragePool", opset=19, kernel_shape=[3, 3], dilations=[2, 2]), "dilations [2, 2] are"),
        (clip_net(), "its limits are []; only [0, 6], which is ReLU6, is supported"),
        (clip_net(0.0), "its limits are [0.0]; only [0, 6]"),
        (clip_net("", 6.0), "its limits are [6.0]; only [0, 6]"),
        (clip_net(0.0, 1.0), "its limits are [0.0, 1.0]; only"),
        (image_net("Clip", "x"), "its input 'x' must be numbers in the file"),
        (image_net("Add", (16,)), "[16] is not a bias by channel of [batch, 6, 16, 16]"),
        (image_net("Add", ()), "[] is not a bias by channel of"),
        (image_net("Add", (2, 6, 1, 1)), "[2, 6, 1, 1] is not a bias by channel of"),
        (image_net("Add", (6, 16, 16)), "[6, 16, 16] is not a bias by channel of"),
        (two_tensors("Add"), "its inputs are [batch, 6, 16, 16] and [batch, 6, 1, 1]; they must not differ"),
        (two_tensors("MatMul"), "must be a constant"),
        (mean_net([1, 3]), "its axes are [1.0, 3.0]; only [2, 3], rows and columns, are supported"),
        (mean_net([2]), "its axes are [2.0]; only [2, 3]"),
        (mean_net(None), "its axes are []; only [2, 3]"),
        (row_net("Gemm", (12, 5), alpha=0.5), "alpha of 0.5 is not supported"),
        (row_net("Gemm", (12, 5), (5,), beta=2.0), "beta of 2 is not supported"),
        (row_net("Gemm", (12, 5), transA=1), "transA of 1 is not supported"),
        (row_net("Gemm", (5, 12)), "its weights take [5]; its input is [batch, 12]"),
        (row_net("Gemm", (12, 5), (1,)), "[1] is not a bias by channel of [batch, 5]"),
        (row_net("Gemm", (12, 5), (3, 5)), "[3, 5] is not a bias by channel of [batch, 5]"),
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
        (after_flatten("Add", (96,)), "[96] is not a bias by channel of [batch, 96]"),
        (after_flatten("GlobalAveragePool"), "its input is [batch, 96], not [batch, channels, rows, columns]"),
        (
            image_net("Softmax", axis=1),
            "is over axis 1 of [batch, 6, 16, 16]; only over all classes of a frame",
        ),
        (row_net("Softmax", axis=0), "is over axis 0 of"),
        (row_net("Softmax", axis=-2), "is over axis -2 of"),
        (behind_softmax(), "follows a softmax, which may only stand at the end"),
        (second_output(), "its input 'mask' is not the first output of a node"),
    ],
)
def test_a_node_that_is_refused(refuse, net, cause):
    text = refuse(net)
    assert text.startswith(f"node c ({net.nodes[-1].op_type}): ")
    assert cause in text


def test_a_node_of_a_foreign_domain(refuse):
    net = Net("N", 12)
    net("Relu", "x", domain="custom", name="")
    assert refuse(net).startswith("node _out_0 (custom.Relu): is not supported; supported are Add, ")


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
        (Net(label_one_hot=("N", 3), x=("N", 3)), "two layers are called label_one_hot"),
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
    assert refuse(Net("N", 12), "x") == "two layers are called x"


def test_a_network_without_inputs(refuse):
    net = Net()
    net("Relu", "x", name="c")
    proto = net.proto()
    del proto.graph.input[:]
    assert "is not a valid ONNX model: Nodes in a graph must be topologically sorted" in refuse(proto)


def test_a_version_or_function_that_is_not_supported(refuse):
    net = Net("N", 12, opset=6)
    net("Relu", "x")
    assert refuse(net).startswith("is of opset 6; 7…")
    net.opset = 1000
    assert refuse(net).startswith("is of opset 1000; 7…")
    net.opset = 17
    body = helper.make_node("F", ["a"], ["b"], domain="custom")
    function = helper.make_function("custom", "F", ["a"], ["b"], [body], [helper.make_opsetid("custom", 1)])
    assert refuse(net.proto(functions=[function])).startswith(
        "has local functions; expand them with onnx.inliner"
    )


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


def _external(path, location, *, tensors=1, length=None):
    """A model whose first weights, and some more tensors, are at the same place of a file."""
    net = Net("N", 12)
    net.gemm("x", 12, 5)
    proto = net.proto()
    weights = proto.graph.initializer[0]
    (path.parent / "weights").write_bytes(weights.raw_data)
    for name in [weights.name, *(f"more{number}" for number in range(1, tensors))]:
        tensor = weights if name == weights.name else proto.graph.initializer.add()
        tensor.ClearField("raw_data")
        tensor.name, tensor.data_type, tensor.data_location = name, TensorProto.FLOAT, TensorProto.EXTERNAL
        tensor.dims[:] = weights.dims
        entries = {"location": location} | ({} if length is None else {"length": str(length)})
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    path.write_bytes(proto.SerializeToString())


def test_external_data_that_many_tensors_name_are_counted_for_each(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    _external(path, "weights", tensors=4)
    assert load_model(str(path)).parameters == 65
    monkeypatch.setattr("fanin.planner.model.onnx_external.MAX_UNPACKED_BYTES", 959)
    monkeypatch.setattr("fanin.planner.model.onnx_external.load_external_data_for_tensor", None)  # before
    said = "its tensors name 960 bytes of external data, more than their files have"
    assert _refused_file(path) == f"is not a valid ONNX model: {said}"


@pytest.mark.parametrize("length", [0, -1])
def test_external_data_without_a_length_count_as_the_whole_file(tmp_path, monkeypatch, length):
    """Older versions of onnx read a whole file for such a length."""
    path = tmp_path / "net.onnx"
    _external(path, "weights", tensors=4, length=length)
    monkeypatch.setattr("fanin.planner.model.onnx_external.MAX_UNPACKED_BYTES", 959)
    monkeypatch.setattr("fanin.planner.model.onnx_external.load_external_data_for_tensor", None)  # before
    assert "its tensors name 960 bytes of external data, more than their files have" in _refused_file(path)


def test_external_data_of_many_spellings_are_counted_once(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    (tmp_path / "d").mkdir()
    _external(path, "weights", tensors=4)
    proto = onnx.load(path, load_external_data=False)
    for number, tensor in enumerate(proto.graph.initializer):
        if tensor.external_data:
            tensor.external_data[0].value = "d/../" * number + "weights"
    path.write_bytes(proto.SerializeToString())
    monkeypatch.setattr("fanin.planner.model.onnx_external.MAX_UNPACKED_BYTES", 959)
    monkeypatch.setattr("fanin.planner.model.onnx_external.load_external_data_for_tensor", None)  # before
    assert "its tensors name 960 bytes of external data, more than their files have" in _refused_file(path)


def _integers(form, words):
    """A net and a list of integers in it, as an initializer or from a node."""
    net = Net("N", 12)
    value = np.ones(words, np.int64)
    if form == "initializer":
        return net, net.constant(value, np.int64)
    if form == "value":
        return net, net("Constant", value=onnx.numpy_helper.from_array(value))
    return net, net("Constant", value_ints=value)


def _in_body(words):
    """A net with a Constant and a Concat in both branches of an If."""
    net = Net("N", 12)
    inner, short = _integers("value", words)
    inner("Concat", *([short] * 3), axis=0)
    body = helper.make_graph(
        inner.nodes, "b", [], [helper.make_tensor_value_info("o", TensorProto.INT64, None)]
    )
    body.output[0].name = inner.nodes[-1].output[0]
    net("If", net.constant(True, bool), then_branch=body, else_branch=body)
    return net


@pytest.mark.parametrize("form", ["initializer", "value", "ints"])
def test_integers_that_inference_would_compute_are_bounded(refuse, monkeypatch, form):
    monkeypatch.setattr("fanin.planner.model.onnx_file.onnx.shape_inference.infer_shapes", None)  # before
    net, short = _integers(form, 30_000)
    net("Reshape", "x", net("Concat", short, short, short, net("Shape", "x"), axis=0))  # not folded
    assert refuse(net).endswith("(Concat): joins 90,001 words, more than 65,536")
    net, short = _integers(form, 30_000)
    for _ in range(140):
        net("Add", short, net("Shape", "x"))
    assert refuse(net) == "its nodes read lists of more than 4,194,304 words in all"
    net, short = _integers(form, 65)
    net("Reshape", "x", short)
    assert refuse(net).endswith("(Reshape): has 65 dimensions, more than 64")


def test_bodies_of_nodes_are_bounded_like_the_graph(refuse, monkeypatch):
    monkeypatch.setattr("fanin.planner.model.onnx_file.onnx.shape_inference.infer_shapes", None)  # before
    monkeypatch.setattr("fanin.planner.model.onnx_file.onnx.checker.check_model", lambda _: None)
    assert refuse(_in_body(30_000)).endswith("(Concat): joins 90,000 words, more than 65,536")


def test_tensors_of_many_dimensions_are_refused(refuse, monkeypatch):
    monkeypatch.setattr("fanin.planner.model.onnx_file.onnx.shape_inference.infer_shapes", None)  # before
    net = Net("N", 12)
    weights = net.weight(1)
    net.weights[-1].dims[:] = [1] * 65
    net("Relu", weights)
    assert refuse(net) == "has a tensor of 65 dimensions, more than 64"


@pytest.mark.parametrize("op", ["Concat", "Gather"])
def test_lists_that_only_inference_knows_take_bounded_memory(refuse, monkeypatch, op):
    monkeypatch.setattr("fanin.planner.model.onnx_file.MAX_INFERENCE_BYTES", 1 << 26)
    net = Net("N", 12)
    long = net("ConstantOfShape", net.constant([1 << 33], np.int64))
    net(op, long, net("Shape", "x") if op == "Gather" else long, axis=0)
    assert refuse(net) == "its shapes do not fit: inference takes more than 64 MiB"


def test_many_joined_maps_are_no_list_of_integers():
    """A dense block: each map is joined to those before it, which doubles no list."""
    net = Net("N", 2, 4, 4)
    maps = ["x"]
    for _ in range(20):
        maps.append(net.conv(net("Concat", *maps, axis=1), (2, 2 * len(maps), 1, 1)))
    proto = net.proto()
    onnx_file._check_lengths(Path("net.onnx"), proto.graph)


def test_external_data_are_files_in_the_model_s_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "weights")
    (tmp_path / "weights").write_bytes(bytes(240))
    os.mkfifo(tmp_path / "in/fifo")
    path = tmp_path / "in/net.onnx"
    for location in ("../weights", str(tmp_path / "weights"), "link", "fifo", "none", "", ".", "x" * 300):
        _external(path, location)
        assert _refused_file(path).startswith("is not a valid ONNX model: w0: its data are in no file of")
        assert external_files(path) == []
    _external(path, "weights", length=-1)
    _refused_file(path)


@pytest.mark.parametrize("content", [b"", b"no model at all", bytes(range(256)), b"\n\x05" + bytes(5)])
def test_a_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    assert _refused_file(path).startswith("is not a valid ONNX model: ")


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
