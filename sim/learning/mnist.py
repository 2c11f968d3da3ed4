"""Reader of MNIST's idx files, plain or gzipped."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.sim.glm.files import READ_ERRORS, open_bytes
from fanin.sim.learning.mlp import CLASSES, Samples

_MAGIC = {1: 0x0801, 3: 0x0803}  # magic of a file of unsigned bytes, by its number of dimensions
_FILE_NAMES = {"train": "train-{}-ubyte", "test": "t10k-{}-ubyte"}
_WHITE = 255  # greatest value of a pixel


def load_mnist(folder: Path) -> tuple[Samples, Samples]:
    """Return the samples of ``load_mnist_images`` with one row per image."""
    train, test = (part.flat for part in load_mnist_images(folder))
    return train, test


def load_mnist_images(folder: Path) -> tuple[Samples, Samples]:
    """Return training and held-out samples, from the four files under their usual names, or with .gz.

    Raises InputError of one line that names the file and its fault.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; MNIST's four idx files are expected in it")
    train, test = _samples(folder, "train"), _samples(folder, "test")
    if train.images.shape[1:] != test.images.shape[1:]:
        test_size, train_size = (" × ".join(map(str, part.images.shape[1:])) for part in (test, train))
        sizes = f"{test_size} pixels, those to train on {train_size}"
        raise InputError(f"{folder}: images to test with have {sizes}")
    return train, test


def _samples(folder: Path, part: str) -> Samples:
    """Return the samples of ``part``, a key of ``_FILE_NAMES``. Raises InputError."""
    images_file = _find(folder, _FILE_NAMES[part].format("images-idx3"))
    labels_file = _find(folder, _FILE_NAMES[part].format("labels-idx1"))
    images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
    if not len(images):
        raise InputError(f"{images_file}: is empty; some images to train on and some held out are needed")
    if not images.size:
        raise InputError(f"{images_file}: images have no pixels")
    if len(images) != len(labels):
        counts = f"{len(labels)} labels for the {len(images)} images"
        raise InputError(f"{labels_file}: {counts} of {images_file.name}")
    if labels.max() >= CLASSES:
        raise InputError(f"{labels_file}: label {labels.max()}; digits are 0 to {CLASSES - 1}")
    return Samples(images.astype(np.float32) / np.float32(_WHITE), labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"{folder / name}: no such file, nor {name}.gz")


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array of an idx file of bytes with 1 or 3 ``dimensions``.

    Raises InputError for a file with another number of dimensions, or of a wrong length.
    """
    try:
        with open_bytes(path) as file:
            data = file.read()
    except (*READ_ERRORS, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    header = 4 * (1 + dimensions)  # bytes: the magic, then the size of each dimension
    if len(data) < header:
        raise InputError(f"{path}: {len(data)} bytes; the header alone has {header}")
    magic, *shape = (int(value) for value in np.frombuffer(data, ">u4", 1 + dimensions))
    if magic != _MAGIC[dimensions]:
        raise InputError(f"{path}: magic is {magic:#010x}, not {_MAGIC[dimensions]:#010x}")
    size = int(np.prod(shape, dtype=object))  # Python's integers: sizes in a broken file may overflow 64 bits
    if len(data) - header != size:
        sizes = " × ".join(map(str, shape))
        raise InputError(f"{path}: {len(data) - header} bytes after the header, which says {sizes}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
