"""Labelled images for a CNN: scikit-learn's digits, MNIST's idx files, or a NumPy archive.

Words are binary32: digits in sixteenths (their brightest pixel is 16), bytes as shares of 255, floats
unchanged.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fanin.base.errors import InputError
from fanin.cnn.layers.layer import Shape
from fanin.sim.learning.mlp import Samples, load_digits
from fanin.sim.learning.mnist import load_mnist_images
from fanin.sim.learning.npz import load_npz_images
from fanin.sim.learning.workloads import ARCHIVE, source_of

SPLIT_SEED = 0  # of the bundled digits: 1,347 for training and 450 held out, for any seed of the run
_SIDE = 8
MAX_FRAMES = (1 << 24) - 1  # frames of a job: fanin.hdl.layers.interface.FRAME_BITS


@dataclass(frozen=True)
class ImageSet:
    """Training and held-out images, axes frame, row, column, channel; ``name`` is the name given to load."""

    name: str
    train: Samples
    test: Samples

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all words and labels, in order."""
        found = hashlib.sha256()
        for part in (self.train, self.test):
            found.update(str(part.images.shape).encode())
            found.update(part.images.astype("<f4").tobytes() + part.digits.astype("<i8").tobytes())
        return found.hexdigest()


def load_images(data: str, shape: Shape, classes: int) -> ImageSet:
    """Return the images of ``data``, checked for a network's shape and classes. Raises InputError."""
    source = source_of(data)
    if source is None:
        parts = tuple(_squared(part) for part in load_digits(SPLIT_SEED))
    else:
        parts = load_npz_images(source) if source.suffix == ARCHIVE else load_mnist_images(source)
    train, test = (_fitting(data, part, shape, classes) for part in parts)
    return ImageSet(data, train, test)


def _squared(part: Samples) -> Samples:
    return replace(part, images=part.images.reshape(-1, _SIDE, _SIDE))


def _fitting(data: str, part: Samples, shape: Shape, classes: int) -> Samples:
    images = part.images[..., None] if part.images.ndim == 3 else part.images
    if images.shape[1:] != (shape.h, shape.w, shape.c):
        found = "×".join(map(str, images.shape[1:])) or "single numbers"
        raise InputError(f"{data}: its images are {found}; the network takes {shape}")
    if len(images) > MAX_FRAMES:
        raise InputError(f"{data}: has {len(images):,} images of a kind; at most {MAX_FRAMES:,} are supported")
    if part.digits.max() >= classes:
        last = f"the network's classes are 0 to {classes - 1}"
        raise InputError(f"{data}: has label {part.digits.max()}; {last}")
    with np.errstate(over="ignore"):
        words = images.astype(np.float32)
    if not np.isfinite(words).all():
        raise InputError(f"{data}: has values beyond binary32")
    return Samples(words, part.digits)
