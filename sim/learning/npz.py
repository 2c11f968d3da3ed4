"""Reader of labelled images in a NumPy archive, by Keras' convention: x_train, y_train, x_test, y_test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.archive import read_archive
from fanin.base.errors import InputError
from fanin.sim.learning.mlp import Samples

PARTS = ("train", "test")
NAMES = tuple(f"{axis}_{part}" for part in PARTS for axis in "xy")
MAX_CLASSES = 1 << 16
_WHITE = 255

Array = npt.NDArray[Any]


def load_npz(path: Path) -> tuple[Samples, Samples]:
    """Return the samples of ``load_npz_images`` with one row per image."""
    train, test = (part.flat for part in load_npz_images(path))
    if train.images.shape[1] != test.images.shape[1]:
        sizes = f"{test.images.shape[1]} values, one to train on {train.images.shape[1]}"
        raise InputError(f"{path}: a sample of x_test has {sizes}")
    return train, test


def load_npz_images(path: Path) -> tuple[Samples, Samples]:
    """Return training and held-out samples: bytes become shares of 255, floats and shapes are unchanged.

    Raises InputError of one line that names the file and its fault.
    """
    arrays = _arrays(path)
    train, test = (_samples(path, part, arrays) for part in PARTS)
    return train, test


def _arrays(path: Path) -> dict[str, Array]:
    try:
        arrays = read_archive(path, NAMES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    if missing := [name for name in NAMES if name not in arrays]:
        raise InputError(f"{path}: no {missing[0]}; {', '.join(NAMES)} are expected in it")
    return arrays


def _samples(path: Path, part: str, arrays: dict[str, Array]) -> Samples:
    images, labels = (arrays[f"{axis}_{part}"] for axis in "xy")
    if images.ndim and not len(images):
        raise InputError(f"{path}: x_{part} is empty; some samples to train on and some held out are needed")
    if not images.ndim or labels.size != len(images) or labels.shape[:1] != images.shape[:1]:
        shapes = f"{_shape(labels)} labels for {_shape(images)} values"
        raise InputError(f"{path}: y_{part} must have a label for each sample of x_{part}, not {shapes}")
    return Samples(_images(path, part, images), _labels(path, part, labels))


def _shape(array: Array) -> str:
    return " × ".join(map(str, array.shape)) or "1"


def _images(path: Path, part: str, images: Array) -> Array:
    if not images.size:
        raise InputError(f"{path}: samples of x_{part} have no values")
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(_WHITE)
    if images.dtype.kind != "f":
        raise InputError(f"{path}: x_{part} must be of uint8 or floats, not of {images.dtype}")
    if not np.isfinite(images).all():
        raise InputError(f"{path}: x_{part} has values that are not finite")
    return images


def _labels(path: Path, part: str, labels: Array) -> npt.NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise InputError(f"{path}: y_{part} must be of integers, not of {labels.dtype}")
    if labels.min() < 0 or labels.max() >= MAX_CLASSES:
        label = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"{path}: y_{part} has label {label}; labels are 0 to {MAX_CLASSES - 1}")
    return labels.reshape(-1).astype(np.int64)
