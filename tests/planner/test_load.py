"""MODEL: the shipped models against their papers, and files of the model language, good and bad."""

import errno
import os
import sys
from pathlib import Path

import pytest

from fanin import planner
from fanin.base.errors import InputError
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.layer import Shape
from fanin.planner.model.load import SHIPPED, load_model

IMPORT = "from fanin.planner import *\n"

LISTING = """
def residual_block(output_channels, stride, source):
    x = conv(output_channels, 3, stride, source)
    x = relu(bias(x))
    x = bias(conv(output_channels, 3, 1, x))

    y = conv(output_channels, 1, stride, source)
    y = add(x, y)
    y = relu(y)
    return y

# input name, [vertical, horizontal, channels]
x = add_input("input", [32, 32, 3])
# output_channels, kernel_size, stride, input
x = conv(16, 5, 2, x)
x = relu(bias(x))

x = residual_block(32, 2, x)
x = residual_block(64, 2, x)
x = conv(128, 1, 1, x)

x = global_avg_pool(x)
x = dense(10, x)

ref = add_input("label_one_hot", [10])
x = soft_cross_loss(x, ref)
add_output("output", x)
"""

SMALL = IMPORT + 'x = add_input("x", [4, 4, 3])\n'


@pytest.fixture
def write(tmp_path):
    """Save a model file."""

    def run(text, name="model.py"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return run


@pytest.fixture
def refuse(write):
    """The one line that a model file is refused with, without the file."""

    def run(text):
        path = write(text)
        with pytest.raises(InputError) as caught:
            load_model(path)
        said = str(caught.value)
        assert len(said.splitlines()) == 1
        assert said.startswith(path)
        return said.removeprefix(path)

    return run


def operations(model):
    """Of a frame in training: a multiplication and an addition, in three ways."""
    convolutions = [node.layer for node in model.nodes if isinstance(node.layer, Conv)]
    return sum(2 * 3 * layer.parameters * layer.output.h * layer.output.w for layer in convolutions)


def described(model):
    return [(node.name, node.layer, node.sources) for node in model.nodes]


def test_listing_1_runs_unchanged_apart_from_its_import(write):
    model = load_model(write(IMPORT + LISTING, "demo.py"))
    assert model.name == "demo"
    assert described(model) == described(load_model("listing1"))


def test_listing_1_is_what_the_paper_draws(write):
    model = load_model("listing1")
    assert " ".join(node.layer.kind for node in model.nodes) == (
        "input conv bias relu "
        "conv bias relu conv bias conv add relu "
        "conv bias relu conv bias conv add relu "
        "conv global_avg_pool dense input soft_cross_loss output"
    )
    joins = [node.sources for node in model.nodes if node.layer.kind == "add"]
    assert joins == [(8, 9), (16, 17)]
    phi, psi = model.nodes[1].layer, model.nodes[12].layer
    assert (phi.input, phi.output, phi.kernel, phi.stride) == (
        Shape(32, 32, 3),
        Shape(16, 16, 16),
        (5, 5),
        (2, 2),
    )
    assert (psi.input, psi.output, psi.kernel, psi.stride) == (Shape(8, 8, 32), Shape(4, 4, 64), (3, 3), (2, 2))
    assert psi.padding == (0, 0, 1, 1)


def test_mobilenet_v2_has_the_size_of_its_paper():
    model = load_model("mobilenet_v2")
    assert model.parameters == 3_487_816  # torchvision's 3,504,872 without 17,056 scales of its normalisations
    assert operations(model) == 1_804_645_632  # NADA: 1.8 GFLOP per frame
    assert [sum(node.layer.kind == kind for node in model.nodes) for kind in ("conv", "dwconv", "add")] == [
        35,
        17,
        10,
    ]
    last = [node.layer.output for node in model.nodes if node.layer.kind == "conv"][-1]
    assert last == Shape(7, 7, 1280)


def test_the_example_cnn_has_the_size_of_its_paper():
    model = load_model("example_cnn")
    assert model.parameters == 1_819_608  # NADA: 1.8 M
    dense = [node.layer for node in model.nodes if isinstance(node.layer, Dense)]
    assert [layer.parameters for layer in dense] == [1_024_000]  # NADA: 1.0 M
    assert operations(model) == 695_468_160  # NADA: 700 MOP per frame


def test_the_example_cnn_has_the_feature_maps_of_table_v():
    model = load_model("example_cnn")
    blocks = [
        (model.nodes[node.sources[0]].layer.output, node.layer.output)
        for node in model.nodes
        if node.layer.kind == "conv" and model.nodes[node.sources[0]].layer.kind == "relu6"
    ]
    assert [str(made) for _, made in blocks] == [
        "112×112×16",
        "56×56×16",
        *2 * ["28×28×24"],
        *2 * ["14×14×48"],
        *2 * ["14×14×64"],
        "7×7×128",
        "7×7×256",
    ]
    assert [str(taken) for taken, _ in blocks] == [
        "112×112×32",
        "56×56×64",
        "28×28×96",
        "28×28×144",
        "14×14×144",
        "14×14×288",
        "14×14×288",
        "14×14×384",
        "7×7×384",
        "7×7×768",
    ]
    others = [str(node.layer.output) for node in model.nodes if node.layer.kind in ("im2col", "avg_pool")]
    assert others == ["112×112×27", "1×1×1024"]


def test_the_digits_cnn_is_small_and_has_one_residual_join():
    model = load_model("digits_cnn")
    assert operations(model) == 2 * 3 * 153_840
    assert model.parameters == 9_482
    layers = [node.layer for node in model.nodes]
    assert [layer.kind for layer in layers].count("add") == 1
    norms = [layer for layer in layers if layer.kind == "online_norm"]
    assert [(norm.forward_decay, norm.backward_decay) for norm in norms] == [(0.99, 0.9)] * 3


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_the_same_every_time(name):
    first, second = load_model(name), load_model(name)
    assert first.name == name
    assert described(first) == described(second)


def test_every_shipped_model_is_listed():
    folder = os.path.dirname(planner.__file__) + "/model/shipped"
    files = {entry.removesuffix(".py") for entry in os.listdir(folder) if entry.endswith(".py")}
    assert files - {"__init__", "bottleneck"} == set(SHIPPED)


def test_a_model_may_use_the_shipped_blocks(write):
    text = (
        SMALL + "from fanin.planner.model.shipped.bottleneck import bottleneck\n"
        "add_output('y', bottleneck(18, 3, 1, x))"
    )
    kinds = [node.layer.kind for node in load_model(write(text)).nodes]
    assert kinds.count("online_norm") == 3
    assert kinds[-2:] == ["add", "output"]


def test_a_model_is_no_program_of_its_own(write, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fanin"])
    text = SMALL + "print('said', __name__, __file__)\nadd_output('y', x)\nif __name__ == '__main__': 1 / 0"
    path = write(text)
    load_model(path)
    assert tuple(capsys.readouterr()) == ("", f"said model {path}\n")  # stdout is for the command's JSON


def test_a_model_is_compiled_without_the_future_of_its_reader(write):
    text = SMALL + (
        "import dataclasses\n@dataclasses.dataclass\nclass Block:\n    channels: int = 4\n"
        "assert Block.__annotations__ == {'channels': int}\n"
        "add_output('y', conv(Block().channels, 1, 1, x))"
    )
    assert len(load_model(write(text)).nodes) == 3


def test_a_model_that_fails_leaves_nothing_to_the_next(write):
    with pytest.raises(InputError):
        load_model(write(SMALL + "raise ValueError"))
    assert len(load_model(write(SMALL + "add_output('y', x)")).nodes) == 2


def test_an_unknown_layer_is_refused_with_those_that_there_are(refuse):
    layers = "; layers are add, add_input, add_output, avg_pool, bias, concat, conv, dense, dwconv, "
    assert refuse(IMPORT + "\nconv3d(1)").startswith(f":3: NameError: name 'conv3d' is not defined{layers}")
    assert refuse("import fanin.planner as p\np.conv3d(1)").startswith(":2: AttributeError: module")
    assert layers in refuse("import fanin.planner as p\np.conv3d(1)")
    assert refuse("from fanin.planner import conv3d").startswith(":1: ImportError: cannot import name 'conv3d'")
    assert layers in refuse("from fanin.planner import conv3d")
    assert refuse("x = 1\nx.conv3d(1)") == ":2: AttributeError: 'int' object has no attribute 'conv3d'"


def test_a_shape_mismatch_names_file_line_and_layer(refuse):
    text = "x = relu(x)\nadd(x, conv(4, 1, 2, x))\n"
    assert refuse(SMALL + text) == ":4: add1: its inputs differ in shape: 4×4×3 and 2×2×4"


def test_a_mismatch_in_a_function_names_the_line_in_it(refuse):
    text = "def block(s):\n    y = conv(3, 1, s, x)\n    return add(x, y)\nx = block(1)\nx = block(2)\n"
    assert refuse(SMALL + text) == ":5: add2: its inputs differ in shape: 4×4×3 and 2×2×3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": the model has no output: add_output(name, source)"),
        (SMALL, ": the model has no output: add_output(name, source)"),
        (SMALL + "relu(x)\nadd_output('y', x)", ":3: relu1 leads to no output"),
        (
            SMALL + "add_output('y', x)\nz = add_input('z', [1])\nadd_output('o', z)",
            ":4: z is not connected with x",
        ),
        (SMALL + "relu(x, name='a')\nrelu(x, name='a')", ":4: two layers are called a"),
        (SMALL + "conv(4, 3, x)", ":3: TypeError: conv() missing 1 required positional argument: 'source'"),
        (SMALL + "relu(x, 6)", ":3: TypeError: relu() takes 1 positional argument but 2 "),
        (SMALL + "relu(x, slope=1)", ":3: TypeError: relu() got an unexpected keyword argument 'slope'"),
        (
            SMALL + "conv(4, 3, 1.0, x)",
            ":3: conv1: stride must be an integer in 1…1048576, not 1.0",
        ),
        (
            SMALL + "def f(x):\n    relu(x)\nrelu(f(x))",
            ":5: relu: its source must be a layer's result, not None",
        ),
        (IMPORT + "1 / 0", ":2: ZeroDivisionError: division by zero"),
        (IMPORT + "raise KeyError('a')", ":2: KeyError: 'a'"),
        (IMPORT + "raise ValueError('two\\nlines')", ":2: ValueError: two lines"),
        (IMPORT + "raise ValueError", ":2: ValueError"),
        (
            "class Broken(Exception):\n    def __str__(self): return 1 / 0\nraise Broken",
            ":3: Broken",
        ),
        (IMPORT + "def f(): f()\nf()", ":2: RecursionError: maximum recursion depth exceeded"),
        (IMPORT + "import sys\nsys.exit(3)", ":3: SystemExit: 3"),
        (IMPORT + "import model", ":2: ModuleNotFoundError: No module named 'model'"),
        (IMPORT + "import no_such_module", ":2: ModuleNotFoundError: No module named 'no_such_module'"),
        (IMPORT + "x = (1,\n", ":2: '(' was never closed"),
        (IMPORT + "def f():\npass", ":3: expected an indented block after function definition on line 2"),
        ("x = 1\0", ": "),
        (b"x = '\xff'", ":1: (unicode error) 'utf-8' codec can't decode byte 0xff"),
        ("(" * 3000, ":1: too many nested parentheses"),
        ("-" * 100_000 + "1", ": "),
    ],
)
def test_a_bad_model_is_refused_in_one_line(refuse, text, said):
    assert refuse(text).startswith(said)


def test_a_model_that_reads_another_one_keeps_its_own_layers(write):
    write(SMALL + "add_output('y', relu(x))", "inner.py")
    text = SMALL + (
        "import os\nfrom fanin.planner.model.load import load_model\n"
        "inner = load_model(os.path.dirname(__file__) + '/inner.py')\n"
        "add_output('y', conv(len(inner.nodes), 1, 1, x))"
    )
    assert [node.layer.output.c for node in load_model(write(text)).nodes] == [3, 3, 3]


def test_a_model_that_reads_itself_is_refused(refuse):
    said = refuse("from fanin.planner.model.load import load_model\nload_model(__file__)")
    assert said.startswith(":2: RecursionError: maximum recursion depth exceeded")


def _said(name):
    with pytest.raises(InputError) as caught:
        load_model(name)
    return str(caught.value)


def test_a_name_that_is_no_model(tmp_path):
    kinds = (
        "must be a .py or .onnx file or one of example_cnn, mobilenet_v2, mobilenet_v2_32, listing1, digits_cnn"
    )
    for name in ("mobilenet", "model.txt", "", ".py", "models/", str(tmp_path)):
        assert _said(name) == f"{name}: {kinds}"
    assert _said(f"{tmp_path}/none.py") == f"{tmp_path}/none.py: no such file"
    (tmp_path / "folder.py").mkdir()
    assert _said(f"{tmp_path}/folder.py") == f"{tmp_path}/folder.py: no such file"
    assert _said("a" * 5000 + ".py").endswith(": File name too long")


def test_a_file_that_may_not_be_read(write, monkeypatch):
    def refuse(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = write(SMALL)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert _said(path) == f"{path}: Permission denied"
    monkeypatch.setattr(Path, "is_file", refuse)
    assert _said(path) == f"{path}: Permission denied"
