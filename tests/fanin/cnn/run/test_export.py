"""What others get: ONNX in another's runtime against the golden model, archives, PyTorch's dictionary."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from fanin.cli.main import main
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.run.checkpoint import flatten_states
from fanin.cnn.run.folder import open_run
from fanin.cnn.run.onnx_file import onnx_model
from fanin.cnn.run.setup import images_of
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned

EVERY_LAYER = """
from fanin.planner import *

x = add_input("image", [9, 8, 4])
x = relu6(bias(online_norm(conv(8, (3, 2), (2, 1), x, padding=[1, 0, 2, 1], groups=2))))
y = bias(dwconv(3, 1, x))
z = im2col((1, 2), 1, x, padding=[0, 1, 0, 0])
y = concat(add(x, y), conv(3, 1, 1, z))
y = relu(max_pool(2, 2, y, padding=[1, 0, 0, 1]))
y = avg_pool((2, 3), 1, y, padding="same")
l = add_input("label", [5])
both = concat(dense(6, y), global_avg_pool(y))
add_output("class", soft_cross_loss(bias(dense(5, both)), l))
"""


def softmax(proto, images):
    """Of ONNX Runtime, for images of axes frame, row, column, channel."""
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images.transpose(0, 3, 1, 2)})[0]


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    words = ["run", small.build, small.data, "--on", "golden", "--batch", "8", "--epochs", "4", "-o", folder]
    assert main(["cluster", *map(str, words)]) == 0
    return folder


def test_every_layer_classifies_as_the_golden_model_does(tmp_path):
    (tmp_path / "model.py").write_text(EVERY_LAYER)
    network = unplanned(load_model(str(tmp_path / "model.py")))
    rng = np.random.default_rng(1)
    states = initial_state(network, 1)
    for name, values in flatten_states(network, tuple(states)).items():
        layer, part = name.split("/")
        if part != "velocity" and not layer.startswith(("conv", "dwconv", "dense")):
            values[:] = rng.uniform(0.3, 0.8, values.shape)
    images = rng.normal(0, 1, (20, 9, 8, 4)).astype(np.float32)
    golden = GoldenNetwork(network, states).evaluate(images).reshape(20, -1)
    found = softmax(onnx_model(network, states), images)
    assert np.ptp(golden, axis=0).max() > 0.2  # classes do not follow from the biases alone
    assert np.abs(found - golden).max() < 1e-5


def test_another_runtime_has_the_same_accuracy_to_the_sample(trained, tmp_path, capsys):
    file = tmp_path / "model.onnx"
    assert main(["cluster", "export", str(trained), "-o", str(file)]) == 0
    run = open_run(trained)
    assert capsys.readouterr().out == f"{file}: small of {trained}/{run.states[-1]}\n"
    data = images_of(run.data, run.network)
    golden = GoldenNetwork(run.network, run.state(run.states[-1]).states)
    for part in (data.train, data.test):
        ours = golden.evaluate(part.images).reshape(len(part), -1).argmax(axis=1)
        found = softmax(onnx.load(file), part.images).argmax(axis=1)
        assert np.array_equal(found, ours)
    assert (ours == data.test.digits).mean() > 0.4


def test_an_archive_goes_into_another_run(trained, small, tmp_path):
    file, first = tmp_path / "model.npz", tmp_path / "first.npz"
    assert main(["cluster", "export", str(trained), "-o", str(file)]) == 0
    with np.load(file) as archive:
        names = set(archive)
    assert names == {
        *("conv1/weights", "bias1/weights", "dense1/weights", "bias2/weights"),
        *(f"online_norm1/{part}" for part in ("mean", "variance", "scale")),
    }
    assert main(["cluster", "init", str(small.model), "--from", str(file), "-o", str(first)]) == 0
    run = open_run(trained)
    last = flatten_states(run.network, run.state(run.states[-1]).states)
    with np.load(first) as archive:
        assert all(np.array_equal(archive[name], last[name]) for name in names)
        assert not archive["conv1/velocity"].any()


def test_pytorch_s_dictionary_fits_its_layers(trained, tmp_path):
    file = tmp_path / "model.pt"
    assert main(["cluster", "export", str(trained), "-o", str(file)]) == 0
    found = torch.load(file, weights_only=True)
    run = open_run(trained)
    states = {
        s.name: state for s, state in zip(run.network.stages, run.state(run.states[-1]).states, strict=True)
    }
    convolution = torch.nn.Conv2d(2, 4, 3, bias=False)
    convolution.load_state_dict({"weight": found["conv1.weight"]})
    weights = states["conv1"]["weights"]
    assert convolution.weight[3, 1, 2, 0] == weights[2, 0, 1, 3]
    assert found["dense1.weight"].shape == (3, 4, 3, 3)
    assert torch.equal(found["online_norm1.running_var"], torch.from_numpy(states["online_norm1"]["variance"]))
    assert set(found) == {
        *("conv1.weight", "dense1.weight", "bias1.bias", "bias2.bias"),
        *("online_norm1.running_mean", "online_norm1.running_var"),
    }
