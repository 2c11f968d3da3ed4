"""What layers make of shapes, and how many words they train: onnx's shape inference is the second opinion."""

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fanin.cnn.layers.add import Add
from fanin.cnn.layers.avg_pool import AvgPool
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.global_avg_pool import GlobalAvgPool
from fanin.cnn.layers.im2col import Im2col
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import MAX_CYCLES, MAX_SIZE, MAX_WORDS, Shape, check_limits, check_sizes, divisors
from fanin.cnn.layers.online_norm import OnlineNorm
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.relu import Relu
from fanin.cnn.layers.relu6 import Relu6
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.layers.window import find_padding, pair

same_every_time = settings(derandomize=True, deadline=None, max_examples=150)

sizes = st.integers(1, 40)
shapes = st.builds(Shape, sizes, sizes, st.integers(1, 12))
pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))
sides = st.one_of(st.sampled_from(["same", "valid"]), st.tuples(*4 * [st.integers(0, 3)]))


class Node:
    """One node of ONNX on a frame, NCHW, behind a batch of one."""

    def __init__(self, op, shape, *weights, **attributes):
        self.weights = [
            numpy_helper.from_array(np.zeros(w, np.float32), f"w{i}") for i, w in enumerate(weights)
        ]
        names = [weight.name for weight in self.weights]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node(op, ["x", *names], ["y"], **attributes)],
            "node",
            [value("x", TensorProto.FLOAT, shape)],
            [value("y", TensorProto.FLOAT, None)],
            self.weights,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def shape(self):
        inferred = onnx.shape_inference.infer_shapes(self.model, strict_mode=True)
        return [dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim]

    def words(self):
        return sum(numpy_helper.to_array(weight).size for weight in self.weights)


def nchw(shape):
    return [1, shape.c, shape.h, shape.w]


@st.composite
def windows(draw):
    """(shape, fields of a window that fits)."""
    shape, kernel, stride, padding = draw(shapes), draw(pairs), draw(pairs), draw(sides)
    padding = find_padding(padding, shape, kernel, stride)
    fitting = tuple(
        min(k, size + before + after)
        for k, size, before, after in zip(kernel, (shape.h, shape.w), padding[:2], padding[2:], strict=True)
    )
    return shape, {"kernel": fitting, "stride": stride, "padding": padding}


def in_onnx(fields):
    return {
        "kernel_shape": list(fields["kernel"]),
        "strides": list(fields["stride"]),
        "pads": list(fields["padding"]),
    }


@given(windows(), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 3]))
@same_every_time
def test_conv_makes_and_trains_what_onnx_says(window, per_group, outputs, groups):
    shape, fields = window
    shape = Shape(shape.h, shape.w, per_group * groups)
    layer = Conv(inputs=(shape,), output_channels=outputs * groups, groups=groups, **fields)
    weights = (outputs * groups, per_group, *fields["kernel"])
    node = Node("Conv", nchw(shape), weights, group=groups, **in_onnx(fields))
    assert (nchw(layer.output), layer.parameters) == (node.shape(), node.words())


@given(windows())
@same_every_time
def test_dwconv_makes_and_trains_what_onnx_says(window):
    shape, fields = window
    layer = DepthwiseConv(inputs=(shape,), output_channels=shape.c, groups=shape.c, **fields)
    node = Node("Conv", nchw(shape), (shape.c, 1, *fields["kernel"]), group=shape.c, **in_onnx(fields))
    assert (nchw(layer.output), layer.parameters) == (node.shape(), node.words())


@given(windows())
@same_every_time
def test_avg_pool_makes_what_onnx_says_and_trains_nothing(window):
    shape, fields = window
    layer = AvgPool(inputs=(shape,), **fields)
    node = Node("AveragePool", nchw(shape), **in_onnx(fields))
    assert (nchw(layer.output), layer.parameters) == (node.shape(), 0)


@given(windows())
@same_every_time
def test_im2col_has_a_window_at_every_position_of_a_convolution(window):
    shape, fields = window
    layer = Im2col(inputs=(shape,), **fields)
    conv = Conv(inputs=(shape,), output_channels=1, **fields)
    top, left, bottom, right = fields["padding"]
    rows = range(-top, shape.h + bottom - fields["kernel"][0] + 1, fields["stride"][0])
    columns = range(-left, shape.w + right - fields["kernel"][1] + 1, fields["stride"][1])
    assert (layer.output.h, layer.output.w) == (len(rows), len(columns)) == (conv.output.h, conv.output.w)
    assert layer.output.c == conv.parameters
    assert layer.parameters == 0


@given(shapes, st.integers(1, 30))
@same_every_time
def test_dense_is_a_matrix_that_takes_the_flattened_frame(shape, outputs):
    layer = Dense(inputs=(shape,), output_channels=outputs)
    node = Node("Gemm", [1, shape.words], (shape.words, outputs))
    assert (nchw(layer.output), layer.parameters) == ([*node.shape(), 1, 1], node.words())


@pytest.mark.parametrize(
    ("cls", "op", "weights"),
    [
        (Relu, "Relu", 0),
        (Relu6, "Clip", 0),
        (OnlineNorm, "BatchNormalization", 4),
        (GlobalAvgPool, "GlobalAveragePool", 0),
    ],
)
@pytest.mark.parametrize("shape", [Shape(7, 5, 6), Shape(1, 1, 3)])
def test_layers_without_parameters_make_what_onnx_says(cls, op, weights, shape):
    layer = cls(inputs=(shape,))
    assert nchw(layer.output) == Node(op, nchw(shape), *weights * [(shape.c,)]).shape()
    assert layer.parameters == 0


@pytest.mark.parametrize("shape", [Shape(7, 5, 6), Shape(1, 1, 3)])
def test_a_bias_trains_a_word_per_channel(shape):
    layer = Bias(inputs=(shape,))
    node = Node("Add", nchw(shape), (1, shape.c, 1, 1))
    assert (nchw(layer.output), layer.parameters) == (node.shape(), node.words())


def test_an_end_of_the_model_hands_on_what_it_gets():
    shape = Shape(4, 3, 2)
    assert Input(shape=shape).output == shape
    assert Output(inputs=(shape,)).output == shape
    assert SoftCrossLoss(inputs=(shape, shape)).output == shape
    assert Add(inputs=(shape, shape)).output == shape


@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (3, 3), (5, 4)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize(("h", "w"), [(8, 8), (7, 10), (3, 2)])
def test_same_padding_is_onnx_s_same_upper(kernel, stride, h, w):
    padding = find_padding("same", Shape(h, w, 1), kernel, stride)
    frame = np.random.default_rng(1).normal(size=(1, 1, h, w)).astype(np.float32)
    said = {"kernel_shape": kernel, "strides": stride}
    made = []
    for how in ({"auto_pad": "SAME_UPPER"}, {"pads": list(padding)}):
        model = Node("Conv", (1, 1, h, w), (1, 1, *kernel), **said, **how).model
        weights = np.arange(1, 1 + kernel[0] * kernel[1], dtype=np.float32).reshape(1, 1, *kernel)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w0"))
        made.append(ReferenceEvaluator(model).run(None, {"x": frame})[0])
    assert np.array_equal(made[0], made[1])
    assert made[0].shape[2:] == (-(-h // stride[0]), -(-w // stride[1]))


def test_padding_is_a_word_a_number_or_four():
    shape, kernel, stride = Shape(32, 32, 3), (5, 5), (2, 2)
    assert find_padding("same", shape, kernel, stride) == (1, 1, 2, 2)
    assert find_padding("same", Shape(8, 8, 32), (3, 3), stride) == (0, 0, 1, 1)  # as ψ in NADA's table I
    assert find_padding("valid", shape, kernel, stride) == (0, 0, 0, 0)
    assert find_padding(2, shape, kernel, stride) == (2, 2, 2, 2)
    assert find_padding([1, 2, 3, 4], shape, kernel, stride) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "padding",
    ["", "full", "1234", -1, True, 1.5, None, (1, 1), (1, 1, 1, -1), (0, 0, 0, True), {1: 1}, [4 * "a"]],
)
def test_other_padding_is_refused(padding):
    with pytest.raises(ValueError, match='padding must be "same", "valid", a number or'):
        find_padding(padding, Shape(8, 8, 1), (3, 3), (1, 1))


def test_a_kernel_is_one_number_or_two():
    assert pair("kernel", 3) == (3, 3)
    assert pair("kernel", (3, 5)) == pair("kernel", [3, 5]) == (3, 5)
    for value in ((), (1,), (1, 2, 3)):
        with pytest.raises(ValueError, match="kernel must be one number or two, not"):
            pair("kernel", value)
    for value in (0, -1, 1.0, "3", None, True, (3, 0), (0, 3), ("3", 3), MAX_SIZE + 1):
        with pytest.raises(ValueError, match="kernel must be an integer in 1…1048576, not"):
            pair("kernel", value)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (
            lambda: Add(inputs=(Shape(2, 2, 3), Shape(2, 2, 4))),
            "its inputs differ in shape: 2×2×3 and 2×2×4",
        ),
        (
            lambda: SoftCrossLoss(inputs=(Shape(1, 1, 3), Shape(1, 1, 4))),
            "logits are 1×1×3, labels 1×1×4",
        ),
        (
            lambda: AvgPool(inputs=(Shape(4, 9, 1),), kernel=(5, 7), stride=(1, 1)),
            "a window of 5×7 does not fit 4×9 (padding included)",
        ),
        (
            lambda: Im2col(inputs=(Shape(9, 4, 1),), kernel=(5, 7), stride=(1, 1), padding=(0, 1, 0, 1)),
            "a window of 5×7 does not fit 9×6 (padding included)",
        ),
        (
            lambda: Conv(inputs=(Shape(4, 4, 6),), kernel=(1, 1), stride=(1, 1), output_channels=6, groups=4),
            "4 groups do not divide 6 input and 6 output channels",
        ),
        (
            lambda: Conv(inputs=(Shape(4, 4, 6),), kernel=(1, 1), stride=(1, 1), output_channels=4, groups=3),
            "3 groups do not divide 6 input and 4 output channels",
        ),
        (
            lambda: DepthwiseConv(
                inputs=(Shape(4, 4, 6),), kernel=(1, 1), stride=(1, 1), output_channels=12, groups=6
            ),
            "6 channels are not 6 groups of one each",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make, cause):
    with pytest.raises(ValueError, match=r".") as caught:
        make()
    assert str(caught.value) == cause


def test_sizes_are_positive_integers():
    check_sizes(first=1, last=MAX_SIZE)
    for value in (0, -1, MAX_SIZE + 1, 1.0, "1", True, None):
        with pytest.raises(ValueError, match="last must be an integer in 1…1048576"):
            check_sizes(first=1, last=value)


def test_what_is_too_large_to_reckon_with_is_refused():
    check_limits(Input(shape=Shape(1 << 12, 1 << 12, MAX_WORDS >> 24)))
    with pytest.raises(ValueError, match="makes 4096×4096×257; a frame has at most 4294967296 words"):
        check_limits(Input(shape=Shape(1 << 12, 1 << 12, (MAX_WORDS >> 24) + 1)))
    with pytest.raises(ValueError, match="vertical must be an integer"):
        check_limits(Input(shape=Shape(0, 1, 1)))
    frame = Shape(1 << 16, 1 << 16, 1)
    check_limits(Dense(inputs=(frame,), output_channels=MAX_CYCLES >> 32))
    with pytest.raises(ValueError, match=r"multiplies [0-9]+ times a frame; at most 281474976710656 times"):
        check_limits(Dense(inputs=(frame,), output_channels=(MAX_CYCLES >> 32) + 1))


def test_divisors_are_all_of_them_in_order():
    for number in itertools.chain(range(1, 500), (2**31 - 1, 62720)):
        found = divisors(number)
        if number < 500:
            assert found == [d for d in range(1, number + 1) if number % d == 0]
        assert found[0] == 1
        assert found[-1] == number
    assert divisors(49) == [1, 7, 49]
