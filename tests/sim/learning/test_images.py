"""Images for a CNN: shapes and words of each source; a line for every kind that is wrong."""

import struct

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cnn.layers.layer import Shape
from fanin.hdl.layers.interface import FRAME_BITS
from fanin.sim.learning import images
from fanin.sim.learning.images import load_images

SHAPE = Shape(3, 4, 1)


def arrays(**changes):
    rng = np.random.default_rng(0)
    found = {
        "x_train": rng.integers(0, 256, (30, 3, 4), np.uint8),
        "y_train": np.arange(30, dtype=np.uint8) % 3,
        "x_test": rng.integers(0, 256, (9, 3, 4), np.uint8),
        "y_test": np.arange(9, dtype=np.uint8) % 3,
    }
    return found | changes


@pytest.fixture
def save(tmp_path):
    def run(**changes):
        path = tmp_path / "set.npz"
        np.savez(path, **arrays(**changes))
        return str(path)

    return run


def refusal(data, shape=SHAPE, classes=3):
    with pytest.raises(InputError) as caught:
        load_images(data, shape, classes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_digits_are_sixteenths_and_split_once_and_for_all():
    found = load_images("digits", Shape(8, 8, 1), 10)
    assert found.train.images.shape == (1347, 8, 8, 1)
    assert found.test.images.shape == (450, 8, 8, 1)
    assert found.train.images.dtype == np.float32
    assert set(np.unique(found.train.images * 16)) == set(range(17))
    assert found.digest == load_images("digits", Shape(8, 8, 1), 10).digest
    assert found.train.digits[:8].tolist() == [7, 3, 6, 6, 7, 6, 7, 9]


def test_an_archive_keeps_its_shape_and_grey_images_get_a_channel(save):
    data = arrays()
    found = load_images(save(), SHAPE, 3)
    assert np.array_equal(found.train.images, (data["x_train"] / np.float32(255))[..., None])
    colours = np.linspace(-1, 1, 9 * 24).reshape(9, 3, 4, 2)
    found = load_images(save(x_train=colours, y_train=data["y_test"], x_test=colours), Shape(3, 4, 2), 3)
    assert np.array_equal(found.train.images, colours.astype(np.float32))


def test_mnist_keeps_rows_and_columns(tmp_path):
    rng = np.random.default_rng(1)
    for part in ("train", "t10k"):
        pixels, labels = rng.integers(0, 256, (5, 3, 4), np.uint8), np.arange(5, dtype=np.uint8)
        for name, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(f">{values.ndim + 1}I", 0x0800 + values.ndim, *values.shape)
            (tmp_path / f"{part}-{name}-ubyte").write_bytes(head + values.tobytes())
    found = load_images(str(tmp_path), SHAPE, 10)
    assert np.array_equal(found.test.images, (pixels / np.float32(255))[..., None])
    assert found.test.digits.tolist() == list(range(5))


def test_one_word_or_label_changes_the_digest(save):
    digests = set()
    changed = arrays()
    changed["x_test"][8, 2, 3] ^= 1
    for change in ({}, {"x_test": changed["x_test"]}, {"y_train": np.roll(changed["y_train"], 1)}):
        digests.add(load_images(save(**change), SHAPE, 3).digest)
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x_train": np.zeros((30, 4, 3), np.uint8)}, "its images are 4×3×1; the network takes 3×4×1"),
        ({"x_train": np.zeros((30, 12), np.uint8)}, "its images are 12; the network takes 3×4×1"),
        ({"x_train": np.zeros(30, np.uint8)}, "its images are single numbers; the network takes 3×4×1"),
        ({"x_test": np.zeros((9, 3, 4, 2), np.uint8)}, "its images are 3×4×2; the network takes 3×4×1"),
        ({"x_train": np.full((30, 3, 4), 1e39)}, "has values beyond binary32"),
        ({"y_test": np.full(9, 3)}, "has label 3; the network's classes are 0 to 2"),
        ({"x_train": np.zeros((30, 3, 4), np.int16)}, "x_train must be of uint8 or floats, not of int16"),
        ({"x_test": np.full((9, 3, 4), np.nan)}, "x_test has values that are not finite"),
        ({"y_train": np.full(30, -1)}, "y_train has label -1; labels are 0 to 65535"),
        ({"y_train": np.zeros(30)}, "y_train must be of integers, not of float64"),
        ({"y_train": np.zeros(29, int)}, "y_train must have a label for each sample of x_train, not 29 labels"),
    ],
)
def test_images_that_do_not_fit_are_refused_in_one_line(save, changes, said):
    path = save(**changes)
    assert refusal(path).startswith(f"{path}: {said}")


def test_what_is_no_data_is_refused():
    assert refusal("faces").endswith(
        "no folder with MNIST's four idx files, no .npz; the bundled set is digits"
    )
    assert refusal("absent.npz") == "absent.npz: cannot be read: No such file or directory"


def test_a_job_counts_so_many_frames():
    assert images.MAX_FRAMES == 2**FRAME_BITS - 1
