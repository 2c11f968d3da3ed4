"""MNIST's files: read plain or gzipped; each way to be wrong is one line that names the file."""

import gzip
import struct

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.sim.learning.mnist import load_mnist
from tests.support import new_seed

TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def _idx(values):
    magic = 0x0800 + values.ndim
    return struct.pack(f">{values.ndim + 1}I", magic, *values.shape) + values.tobytes()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(new_seed())
    for part, count in (("train", 7), ("t10k", 3)):
        images = rng.integers(0, 256, (count, 4, 5), dtype=np.uint8)
        images[0, 0, 0] = 255
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(_idx(images))
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(_idx(labels))
    return tmp_path


def test_images_are_rows_from_0_to_1_in_the_order_of_the_files(folder):
    train, test = load_mnist(folder)
    assert (train.images.shape, test.images.shape) == ((7, 20), (3, 20))
    pixels = np.frombuffer((folder / TRAIN).read_bytes()[16:], np.uint8).reshape(7, 20)
    assert np.array_equal(train.images, pixels.astype(np.float32) / 255)
    assert train.images[0, 0] == 1
    assert train.digits.tolist() == list((folder / LABELS).read_bytes()[8:])


def test_gzipped_files_are_the_same(folder):
    plain = load_mnist(folder)
    for path in list(folder.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    for part, expected in zip(load_mnist(folder), plain, strict=True):
        assert np.array_equal(part.images, expected.images)
        assert np.array_equal(part.digits, expected.digits)


def _refused(folder, match):
    with pytest.raises(InputError, match=match) as error:
        load_mnist(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        (TRAIN, b"\0\0\x08\x01" + bytes(16), f"{TRAIN}: magic is 0x00000801, not 0x00000803"),
        (LABELS, b"\0\0\x08\x03" + bytes(16), f"{LABELS}: magic is 0x00000803, not 0x00000801"),
        (TRAIN, b"\0\0\x08\x03", f"{TRAIN}: 4 bytes; the header alone has 16"),
        (TRAIN, _idx(np.zeros((7, 4, 5), np.uint8))[:-1], "139 bytes after the header, which says 7 × 4 × 5"),
        (LABELS, _idx(np.zeros(7, np.uint8)) + b"x", f"{LABELS}: 8 bytes after the header, which says 7"),
        (
            TRAIN,
            _idx(np.zeros((0, 4, 5), np.uint8)),
            f"{TRAIN}: is empty; some images to train on and some held",
        ),
        (TRAIN, _idx(np.zeros((7, 0, 0), np.uint8)), f"{TRAIN}: images have no pixels"),
        (LABELS, _idx(np.zeros(6, np.uint8)), f"{LABELS}: 6 labels for the 7 images of {TRAIN}"),
        (LABELS, _idx(np.full(7, 10, np.uint8)), f"{LABELS}: label 10; digits are 0 to 9"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_cause(folder, name, data, match):
    (folder / name).write_bytes(data)
    _refused(folder, match)


def test_a_folder_or_file_that_is_missing_is_named(folder):
    _refused(folder / "none", "none: no such folder")
    (folder / LABELS).unlink()
    _refused(folder, rf"{LABELS}: no such file, nor {LABELS}.gz")


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: data[:40] + b"?" * 40])
def test_a_broken_gzip_file_is_named(folder, spoil):
    path = folder / f"{TRAIN}.gz"
    path.write_bytes(spoil(gzip.compress((folder / TRAIN).read_bytes())))
    (folder / TRAIN).unlink()
    _refused(folder, rf"{TRAIN}.gz: cannot be read: ")
