"""The model language: what functions make of their tensors, the graph of that, refusals with file and line."""

import contextvars
import inspect
import random

import pytest

from fanin import planner
from fanin.base.errors import InputError
from fanin.cnn.layers.layer import Shape
from fanin.planner import (
    add,
    add_input,
    add_output,
    avg_pool,
    bias,
    concat,
    conv,
    dense,
    dwconv,
    global_avg_pool,
    im2col,
    max_pool,
    online_norm,
    relu,
    relu6,
    soft_cross_loss,
)
from fanin.planner.model.dsl import new_model

FRAME = [9, 12, 4]


@pytest.fixture
def builder():
    with new_model() as found:
        yield found


@pytest.fixture
def x(builder):
    return add_input("x", FRAME)


@pytest.fixture
def finish(builder):
    """The model of what was added."""
    return lambda: builder.finish("m", "m.py")


def line(offset=0):
    """File and line of the caller, as errors begin."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + offset}"


def refusal(call):
    """What is said of a call that is refused."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "kind", "shape", "parameters"),
    [
        (lambda x: conv(8, 3, 1, x), "conv", (9, 12, 8), 8 * 4 * 9),
        (lambda x: conv(8, 3, 2, x), "conv", (5, 6, 8), 8 * 4 * 9),
        (lambda x: conv(8, (3, 5), (1, 4), x), "conv", (9, 3, 8), 8 * 4 * 15),
        (lambda x: conv(8, [3, 5], [1, 4], x, padding="valid"), "conv", (7, 2, 8), 8 * 4 * 15),
        (lambda x: conv(8, 3, 1, x, padding=3), "conv", (13, 16, 8), 8 * 4 * 9),
        (lambda x: conv(8, 3, 1, x, padding=[0, 1, 2, 3]), "conv", (9, 14, 8), 8 * 4 * 9),
        (lambda x: conv(8, 3, 1, x, groups=2), "conv", (9, 12, 8), 8 * 2 * 9),
        (lambda x: dwconv(3, 2, x), "dwconv", (5, 6, 4), 4 * 9),
        (lambda x: dwconv(3, 1, x, padding="valid"), "dwconv", (7, 10, 4), 4 * 9),
        (lambda x: im2col(3, 2, x), "im2col", (5, 6, 36), 0),
        (lambda x: max_pool(3, 2, x), "max_pool", (4, 5, 4), 0),
        (lambda x: max_pool((2, 3), 1, x, padding="same"), "max_pool", (9, 12, 4), 0),
        (lambda x: avg_pool(3, 3, x), "avg_pool", (3, 4, 4), 0),
        (lambda x: avg_pool((2, 3), 1, x, padding="same"), "avg_pool", (9, 12, 4), 0),
        (lambda x: global_avg_pool(x), "global_avg_pool", (1, 1, 4), 0),
        (lambda x: dense(10, x), "dense", (1, 1, 10), 10 * 9 * 12 * 4),
        (lambda x: bias(x), "bias", (9, 12, 4), 4),
        (lambda x: relu(x), "relu", (9, 12, 4), 0),
        (lambda x: relu6(x), "relu6", (9, 12, 4), 0),
        (lambda x: online_norm(x), "online_norm", (9, 12, 4), 0),
        (lambda x: add(x, x), "add", (9, 12, 4), 0),
        (lambda x: concat(x, x), "concat", (9, 12, 8), 0),
        (lambda x: concat(x, x, x), "concat", (9, 12, 12), 0),
    ],
)
def test_a_function_adds_its_layer(x, finish, call, kind, shape, parameters):
    y = call(x)
    assert y.shape == Shape(*shape)
    add_output("y", y)
    node = finish().nodes[1]
    assert (node.name, node.layer.kind, node.layer.output) == (f"{kind}1", kind, y.shape)
    assert node.layer.parameters == parameters
    assert set(node.sources) == {0}


def test_labels_are_one_number_for_their_classes(builder):
    assert (
        add_input("a", [10]).shape == add_input("b", (10,)).shape == add_input("c", 10).shape == Shape(1, 1, 10)
    )


def test_every_layer_may_have_a_name(x, finish):
    y = conv(4, 1, 1, x, name="a")
    y = dwconv(1, 1, y, name="b")
    y = im2col(1, 1, y, name="c")
    y = avg_pool(1, 1, y, name="d")
    y = max_pool(1, 1, concat(y, y, name="n"), name="o")
    y = relu6(relu(bias(online_norm(y, name="e"), name="f"), name="g"), name="h")
    y = dense(3, global_avg_pool(add(y, y, name="i"), name="j"), name="k")
    add_output("m", soft_cross_loss(y, add_input("labels", [3]), name="l"))
    assert [node.name for node in finish().nodes] == ["x", *"abcdnoefghijk", "labels", "l", "m"]


def test_online_normalisation_decays_as_it_is_told(x, finish):
    add_output("y", online_norm(online_norm(x), forward=0.99, backward=0.9))
    first, second = (node.layer for node in finish().nodes[1:3])
    assert (first.forward_decay, first.backward_decay) == (0.999, 0.99)
    assert (second.forward_decay, second.backward_decay) == (0.99, 0.9)


def test_channels_are_joined_in_the_order_of_the_sources(x, finish):
    y = concat(conv(8, 1, 1, x), x, conv(2, 1, 1, x))
    add_output("y", y)
    model = finish()
    assert y.shape == Shape(9, 12, 14)
    assert [model.nodes[source].name for source in model.nodes[y.index].sources] == ["conv1", "x", "conv2"]


def test_other_layers_are_numbered_after_their_kind_around_names_that_are_taken(x, finish):
    y = relu(relu(relu(x), name="relu2"))
    add_output("y", bias(relu(y)))
    assert [node.name for node in finish().nodes] == ["x", "relu1", "relu2", "relu3", "relu4", "bias1", "y"]


def test_gradients_are_made_behind_parameters_only(x, finish):
    late = bias(relu(im2col(3, 1, x)))
    add_output("y", soft_cross_loss(dense(2, relu(late)), add_input("labels", [2])))
    gradients = {node.name: node.layer.gradient for node in finish().nodes}
    assert [name for name, made in gradients.items() if made] == ["relu2", "dense1", "soft_cross_loss1", "y"]


def test_one_branch_with_parameters_is_enough_for_a_gradient(x, finish):
    add_output("y", relu(add(relu(x), conv(4, 1, 1, x))))
    gradients = {node.name: node.layer.gradient for node in finish().nodes}
    assert gradients == {"x": False, "relu1": False, "conv1": False, "add1": True, "relu2": True, "y": True}


def test_edges_have_the_bits_of_what_they_carry(x, finish):
    y = add(conv(4, 1, 1, x), x)
    add_output("y", soft_cross_loss(dense(2, y), add_input("labels", [2])))
    model = finish()
    named = [(model.nodes[e.source].name, model.nodes[e.target].name, e.bits, e.label) for e in model.edges]
    image, classes = 9 * 8 * (4 * 48 + 88), 8 * (64 + 88)  # nine rows of 48 words; a beat
    assert named == [
        ("x", "conv1", image, False),
        ("conv1", "add1", image, False),
        ("x", "add1", image, False),
        ("add1", "dense1", image, False),
        ("dense1", "soft_cross_loss1", classes, False),
        ("labels", "soft_cross_loss1", classes, True),
        ("soft_cross_loss1", "y", classes, False),
    ]
    assert model.parameters == 16 + 864
    assert model.by_name["labels"] == 4


def test_the_host_s_device_holds_ends_and_what_inputs_feed(x, finish):
    y = add(relu(conv(4, 1, 1, x)), x)
    add_output("y", soft_cross_loss(dense(2, relu(y)), add_input("labels", [2])))
    model = finish()
    pinned = {model.nodes[index].name for index in model.pinned}
    assert pinned == {"x", "conv1", "add1", "labels", "soft_cross_loss1", "y"}


def test_one_input_may_be_the_labels_of_two_losses(x, finish):
    labels = add_input("labels", [2])
    add_output("first", soft_cross_loss(dense(2, x), labels))
    add_output("second", soft_cross_loss(dense(2, x), labels))
    assert sum(edge.label for edge in finish().edges) == 2


def test_inputs_may_be_added_in_a_function(builder, finish):
    def branch(name):
        return relu(add_input(name, FRAME))

    add_output("y", add(branch("left"), branch("right")))
    assert [node.name for node in finish().nodes] == ["left", "relu1", "right", "relu2", "add1", "y"]


def test_models_do_not_mix(builder, x):
    with new_model() as inner:
        y = add_input("x", FRAME)
        for call in (lambda: add(y, x), lambda: relu(x), lambda: add_output("y", x)):
            assert refusal(call).endswith(": its source is a layer of another model")
        add_output("y", y)
        assert len(inner.finish("m", "m.py").nodes) == 2
    assert refusal(lambda: relu(y)) == f"{line()}: relu: its source is a layer of another model"
    relu(x)


def test_a_model_file_may_be_run_by_itself():
    def run():
        return relu(add_input("x", FRAME)).shape

    assert contextvars.Context().run(run) == Shape(*FRAME)


def test_a_join_of_different_shapes_names_file_line_and_layer(x):
    y = conv(4, 3, 2, x)
    add(x, x)
    said = refusal(lambda: add(x, y))
    assert said == f"{line(-1)}: add2: its inputs differ in shape: 9×12×4 and 5×6×4"
    said = refusal(lambda: add(x, y, name="join"))
    assert said == f"{line(-1)}: join: its inputs differ in shape: 9×12×4 and 5×6×4"
    labels = add_input("labels", [5])
    said = refusal(lambda: soft_cross_loss(dense(6, x), labels))
    assert said == f"{line(-1)}: soft_cross_loss1: logits are 1×1×6, labels 1×1×5"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: conv("16", 3, 1, x), "conv1: output_channels must be an integer in 1…1048576, not '16'"),
        (lambda x: conv(16.0, 3, 1, x), "conv1: output_channels must be an integer in 1…1048576, not 16.0"),
        (lambda x: conv(0, 3, 1, x), "conv1: output_channels must be an integer in 1…1048576, not 0"),
        (lambda x: conv(-1, 3, 1, x), "conv1: output_channels must be an integer in 1…1048576, not -1"),
        (lambda x: conv(True, 3, 1, x), "conv1: output_channels must be an integer in 1…1048576, not True"),
        (lambda x: conv(8, 0, 1, x), "conv1: kernel must be an integer in 1…1048576, not 0"),
        (lambda x: conv(8, "3", 1, x), "conv1: kernel must be an integer in 1…1048576, not '3'"),
        (lambda x: conv(8, 3, 0, x), "conv1: stride must be an integer in 1…1048576, not 0"),
        (lambda x: conv(8, 3, (1, 1, 1), x), "conv1: stride must be one number or two, not (1, 1, 1)"),
        (lambda x: conv(8, 3, 1.5, x), "conv1: stride must be an integer in 1…1048576, not 1.5"),
        (lambda x: conv(8, 3, 1, x, groups=0), "conv1: groups must be an integer in 1…1048576, not 0"),
        (lambda x: conv(8, 3, 1, x, groups=3), "conv1: 3 groups do not divide 4 input and 8 output channels"),
        (
            lambda x: conv(8, 10, 1, x, padding=0),
            "conv1: a window of 10×10 does not fit 9×12 (padding included)",
        ),
        (lambda x: conv(8, 3, 1, x, padding="none"), 'conv1: padding must be "same", "valid", a number or '),
        (lambda x: conv(8, 3, 1, x, padding=-1), 'conv1: padding must be "same", "valid", a number or '),
        (lambda x: conv(8, 3, 1, x, padding=0.5), 'conv1: padding must be "same", "valid", a number or '),
        (lambda x: conv(8, 3, 1, x, padding=1 << 30), "conv1: vertical must be an integer in 1…1048576, not 2"),
        (lambda x: dwconv(3, 0, x, name="d"), "d: stride must be an integer in 1…1048576, not 0"),
        (lambda x: im2col(0, 1, x), "im2col1: kernel must be an integer in 1…1048576, not 0"),
        (lambda x: avg_pool(10, 1, x), "avg_pool1: a window of 10×10 does not fit 9×12 (padding included)"),
        (lambda x: max_pool(10, 1, x), "max_pool1: a window of 10×10 does not fit 9×12 (padding included)"),
        (
            lambda x: max_pool(2, 1, x, padding=(0, 2, 0, 0)),
            "max_pool1: padding (0, 2, 0, 0) must be below the kernel, 2×2: a window would see only padding",
        ),
        (lambda x: concat(x, x, 3), "concat: its source must be a layer's result, not 3"),
        (
            lambda x: concat(x, avg_pool(3, 3, x)),
            "concat1: its inputs differ in rows or columns: 9×12×4 and 3×4×4",
        ),
        (
            lambda x: online_norm(x, forward=1),
            "online_norm1: forward_decay must be a number between 0 and 1, not 1",
        ),
        (
            lambda x: online_norm(x, backward="a"),
            "online_norm1: backward_decay must be a number between 0 and 1, ",
        ),
        (lambda x: dense(0, x), "dense1: outputs must be an integer in 1…1048576, not 0"),
        (lambda x: dense(1.0, x), "dense1: outputs must be an integer in 1…1048576, not 1.0"),
        (lambda x: relu(None), "relu: its source must be a layer's result, not None"),
        (lambda x: relu([x]), "relu: its source must be a layer's result, not ["),
        (lambda x: dwconv(3, 1, 5), "dwconv: its source must be a layer's result, not 5"),
        (lambda x: add(x, 1, name="sum"), "sum: its source must be a layer's result, not 1"),
        (lambda x: conv(16, x, 3, 1), "conv: its source must be a layer's result, not 1"),
        (
            lambda x: soft_cross_loss(x, "labels"),
            "soft_cross_loss: its source must be a layer's result, not 'lab",
        ),
        (lambda x: relu(add_output("y", x)), "relu: its source must be a layer's result, not None"),
        (lambda x: relu(x, name="x"), "two layers are called x"),
        (lambda x: add_input("x", FRAME), "two layers are called x"),
        (lambda x: add_output("x", x), "two layers are called x"),
        (lambda x: relu(x, name=5), "a layer's name must be a text of one line, not 5"),
        (lambda x: relu(x, name=""), "a layer's name must be a text of one line, not ''"),
        (lambda x: relu(x, name="a\nb"), "a layer's name must be a text of one line, not 'a\\nb'"),
        (lambda x: add_input([3, 3, 3], "x"), "a layer's name must be a text of one line, not [3, 3, 3]"),
        (lambda x: add_input("y", []), "y: a shape is [vertical, horizontal, channels] or [channels]"),
        (lambda x: add_input("y", [2, 2]), "y: a shape is [vertical, horizontal, channels] or [channels]"),
        (
            lambda x: add_input("y", [1, 2, 3, 4]),
            "y: a shape is [vertical, horizontal, channels] or [channels]",
        ),
        (lambda x: add_input("y", [0, 2, 3]), "y: vertical must be an integer in 1…1048576, not 0"),
        (lambda x: add_input("y", [2, "2", 3]), "y: horizontal must be an integer in 1…1048576, not '2'"),
        (lambda x: add_input("y", [2, 2, 3.5]), "y: channels must be an integer in 1…1048576, not 3.5"),
        (lambda x: add_input("y", [-3]), "y: channels must be an integer in 1…1048576, not -3"),
        (lambda x: add_input("y", None), "y: channels must be an integer in 1…1048576, not None"),
        (lambda x: add_input("y", [1 << 20, 1 << 20, 1]), "y: makes 1048576×1048576×1; a frame has at most"),
    ],
)
def test_a_call_that_is_refused_names_file_line_and_layer(x, call, said):
    text = refusal(lambda: call(x))
    assert text.startswith(f"{__file__}:{call.__code__.co_firstlineno}: {said}")
    assert len(text.splitlines()) == 1


def test_a_refused_layer_is_not_in_the_model(x, finish):
    refusal(lambda: conv(0, 3, 1, x))
    refusal(lambda: add(x, dense(3, x)))
    add_output("y", relu(x))
    assert refusal(finish).endswith("dense1 leads to no output")


def test_a_model_has_an_output(x, finish):
    assert refusal(finish) == "m.py: the model has no output: add_output(name, source)"


def test_an_empty_model_has_no_output(finish):
    assert refusal(finish) == "m.py: the model has no output: add_output(name, source)"


def test_every_layer_leads_to_an_output(x, finish):
    add_output("y", relu(x))
    relu(relu(x))
    assert refusal(finish) == f"{line(-1)}: relu2 leads to no output"


def test_an_input_that_nothing_uses_leads_to_no_output(x, finish):
    add_output("y", relu(x))
    add_input("z", [3])
    assert refusal(finish) == f"{line(-1)}: z leads to no output"


def test_a_graph_is_connected(x, finish):
    add_output("y", relu(x))
    z = add_input("z", FRAME)
    add_output("w", z)
    assert refusal(finish) == f"{line(-2)}: z is not connected with x"


def test_labels_are_an_input(x, finish):
    add_output("y", soft_cross_loss(dense(3, x), relu(add_input("labels", [3]))))
    assert refusal(finish) == f"{line(-1)}: soft_cross_loss1: its labels must be an input, not relu1"


def test_logits_and_labels_are_not_swapped(x, finish):
    y = dense(3, x)
    y = soft_cross_loss(add_input("labels", [3]), y)
    add_output("y", y)
    assert refusal(finish) == f"{line(-2)}: soft_cross_loss1: its labels must be an input, not dense1"


def test_the_network_does_not_see_its_labels(x, finish):
    labels = add_input("labels", [3])
    y = add(dense(3, x), labels)
    add_output("y", soft_cross_loss(y, labels))
    assert refusal(finish) == f"{line(-2)}: add1: labels is labels, for soft_cross_loss1 alone"


def said_of(function, arguments):
    try:
        function(**arguments)
    except InputError as error:
        return str(error)
    return ""


def test_any_call_is_a_layer_or_refused_in_one_line():
    rng = random.Random(1)
    junk = [
        0,
        1,
        2,
        3,
        7,
        -1,
        1.5,
        True,
        None,
        "same",
        "valid",
        "",
        "x",
        (3, 3),
        [1, 2],
        (1,),
        {},
        object(),
        1 << 40,
    ]
    outcomes = {"layer": 0, "refused": 0}
    for _ in range(3000):
        with new_model():
            tensors = [add_input("a", [6, 5, 4]), add_input("b", [4])]
            function = getattr(planner, rng.choice(planner.__all__))
            arguments = {}
            for parameter in inspect.signature(function).parameters.values():
                if parameter.kind is parameter.VAR_POSITIONAL:
                    continue
                likely = {"kernel": [1, 3], "stride": [1, 2], "output_channels": [4], "outputs": [4]}
                usual = likely.get(parameter.name, ["n"] if parameter.name == "name" else tensors)
                arguments[parameter.name] = rng.choice(junk if rng.random() < 0.3 else usual)
            said = said_of(function, arguments)
            assert len(said.splitlines()) <= 1
            outcomes["refused" if said else "layer"] += 1
    assert min(outcomes.values()) > 300, outcomes
