"""``fanin ps train`` on MNIST's files, and on archives."""

import struct

import numpy as np
import pytest

from fanin.param_server.facts import MODELS
from fanin.sim.param_server.recipes import MNIST
from tests.fanin.cli.ps import SMALL, json_of_ps, refused_ps


def _idx(values):
    return struct.pack(f">{values.ndim + 1}I", 0x0800 + values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def mnist(tmp_path):
    """Four files of MNIST's form, whose digits are easy to tell."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 200), ("t10k", 50)):
        digits = rng.integers(0, 10, count).astype(np.uint8)
        images = rng.integers(0, 60, (count, 4, 5)).astype(np.uint8)
        images[np.arange(count), digits // 5, digits % 5] = 255
        (folder / f"{part}-images-idx3-ubyte").write_bytes(_idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(_idx(digits))
    return folder


def test_mnist_is_read_from_a_folder(capsys, tmp_path, mnist):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 20 {mnist}")
    assert found["configuration"]["data"] == str(mnist)
    assert found["accuracy"] > 0.95
    assert np.load(tmp_path / "run" / "model.npy").shape == ((4 * 5 + 1) * 10,)


def test_an_archive_is_read_and_has_as_many_classes_as_its_labels(capsys, tmp_path):
    rng, path = np.random.default_rng(1), tmp_path / "set.npz"
    labels = np.arange(60) % 3
    images = rng.integers(0, 60, (60, 2, 2)).astype(np.uint8)
    images[np.arange(60), labels // 2, labels % 2] = 255
    np.savez(path, x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 20 --batch 5 {path}")
    assert found["configuration"]["data"] == str(path)
    assert found["accuracy"] == 1
    assert np.load(tmp_path / "run" / "model.npy").shape == (5 * 3,)


@pytest.mark.parametrize("model", MODELS)
def test_mnist_has_hyper_parameters_of_its_own(capsys, tmp_path, mnist, model):
    found = json_of_ps(capsys, tmp_path / "run", f"--on model --epochs 1 --model {model} {mnist}")
    recipe = MNIST[model]
    for name in ("lr", "decay", "warm_up"):
        assert found["configuration"][name] == getattr(recipe, name)
    assert found["configuration"]["gamma"] == (recipe.gamma if model == "lr-rff" else None)
    assert found["configuration"]["optimum"] is False


@pytest.mark.parametrize(
    ("name", "change", "cause"),
    [
        ("train-images-idx3-ubyte", lambda data: b"\x01" + data[1:], "magic is 0x01000803, not 0x00000803"),
        ("train-labels-idx1-ubyte", lambda data: data[:-1], "199 bytes after the header, which says 200"),
        (
            "t10k-images-idx3-ubyte",
            lambda data: _idx(np.zeros((50, 4, 4), np.uint8)),
            "images to test with have 4 × 4 pixels, those to train on 4 × 5",
        ),
    ],
)
def test_mnist_that_is_none_is_named(capsys, tmp_path, mnist, name, change, cause):
    path = mnist / name
    path.write_bytes(change(path.read_bytes()))
    err = refused_ps(capsys, tmp_path, f"{SMALL} {mnist}")
    assert cause in err
    assert str(mnist) in err
