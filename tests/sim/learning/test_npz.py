"""Archives by Keras' convention: what is read, and a line for every kind that is wrong."""

import zipfile

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.sim.learning.npz import load_npz
from fanin.sim.learning.workloads import build, load, source_of


def arrays(**changes):
    rng = np.random.default_rng(0)
    found = {
        "x_train": rng.integers(0, 256, (30, 3, 4), np.uint8),
        "y_train": np.arange(30, dtype=np.uint8) % 3,
        "x_test": rng.integers(0, 256, (9, 3, 4), np.uint8),
        "y_test": np.arange(9, dtype=np.uint8) % 3,
    }
    return found | changes


def saved(tmp_path, found):
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **found)
    return path


def test_bytes_become_shares_of_255_and_images_rows(tmp_path):
    found = arrays()
    train, test = load(source_of(str(saved(tmp_path, found))), 0)
    assert (train.images.dtype, train.images.shape, test.images.shape) == (np.float32, (30, 12), (9, 12))
    assert np.array_equal(train.images, found["x_train"].reshape(30, 12) / np.float32(255))
    assert np.array_equal(test.digits, found["y_test"])
    assert test.digits.dtype == np.int64


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_stay_as_they_are_and_a_column_of_labels_is_one(tmp_path, kind):
    images = np.linspace(-3, 7, 60).reshape(30, 2).astype(kind)
    found = arrays(x_train=images, x_test=images[:9], y_train=np.zeros((30, 1), np.int32))
    train, _ = load_npz(saved(tmp_path, found))
    assert train.images.dtype == kind
    assert np.array_equal(train.images, images)
    assert train.digits.shape == (30,)


def test_the_parameter_servers_networks_have_as_many_classes(tmp_path):
    data = load_npz(saved(tmp_path, arrays()))
    assert build("lr", data).network.widths == (12, 3)
    assert build("fcnn", data).network.widths == (12, 128, 3)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"x_train": np.zeros((30, 5), np.uint8)}, "a sample of x_test has 12 values, one to train on 5"),
        (
            {"y_train": np.zeros(29, int)},
            "y_train must have a label for each sample of x_train, not 29 labels for",
        ),
        (
            {"y_test": np.zeros((9, 3), int)},
            "y_test must have a label for each sample of x_test, not 9 × 3 labels",
        ),
        ({"x_test": np.zeros((0, 12)), "y_test": np.zeros(0, int)}, "x_test is empty; some samples to train"),
        (
            {"x_test": np.float32(3)},
            "y_test must have a label for each sample of x_test, not 9 labels for 1 values",
        ),
        ({"x_train": np.zeros((30, 0))}, "samples of x_train have no values"),
        ({"x_train": np.zeros((30, 12), int)}, "x_train must be of uint8 or floats, not of int64"),
        ({"x_train": np.full((30, 12), np.nan)}, "x_train has values that are not finite"),
        ({"y_train": np.zeros(30)}, "y_train must be of integers, not of float64"),
        ({"y_train": np.full(30, -1)}, "y_train has label -1; labels are 0 to 65535"),
        ({"y_test": np.full(9, 1 << 16)}, "y_test has label 65536; labels are 0 to 65535"),
        ({"y_test": np.array([{}] * 9)}, "no NumPy archive of numbers: an array of Python objects"),
    ],
)
def test_an_archive_that_is_none_is_named(tmp_path, changes, cause):
    path = saved(tmp_path, arrays(**changes))
    with pytest.raises(InputError) as found:
        load_npz(path)
    assert str(found.value).startswith(f"{path}: {cause}")


def test_a_file_that_is_no_archive_is_named(tmp_path):
    found = arrays()
    del found["x_test"]
    with pytest.raises(InputError, match="no x_test; x_train, y_train, x_test, y_test are expected in it"):
        load_npz(saved(tmp_path, found))
    path = tmp_path / "other.npz"
    with pytest.raises(InputError, match=r"other.npz: cannot be read: No such file or directory"):
        load_npz(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    whole = saved(tmp_path, arrays()).read_bytes()
    for content in b"text", path.read_bytes(), whole[: len(whole) // 2]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"other.npz: no NumPy archive, or one that was cut off"):
            load_npz(path)
    damaged = bytearray(whole)
    damaged[100:140] = bytes(40)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"other.npz: no NumPy archive of numbers: "):
        load_npz(path)


def test_an_array_that_is_none_is_named(tmp_path):
    path = saved(tmp_path, {name: values for name, values in arrays().items() if name != "x_test"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_test.npy", "text")
    with pytest.raises(InputError, match=r"set\.npz: no NumPy archive of numbers: x_test is no array"):
        load_npz(path)
