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

SPLIT_SEED = 0  # splits the bundled digits into 1,347 for training and 450 held out, for any seed of the run
_DIGITS_SIDE = 8
MAX_FRAMES = (1 << 24) - 1  # maximum frames of a job: fanin.hdl.layers.interface.FRAME_BITS


@dataclass(frozen=True)
class ImageSet:
    """Training and held-out images with axes frame, row, column, channel.

    ``name``: name of the data set, as passed to ``load_images``.
    """

    name: str
    train: Samples
    test: Samples

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all words and labels, in order."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            digest.update(str(part.images.shape).encode())
            digest.update(part.images.astype("<f4").tobytes() + part.digits.astype("<i8").tobytes())
        return digest.hexdigest()


def load_images(data: str, shape: Shape, classes: int) -> ImageSet:
    """Return the images of ``data``, the bundled set's name or a path. Raises InputError.

    ``shape`` and ``classes`` are those of the network, which the images must fit.
    """
    source = source_of(data)
    if source is None:
        parts = tuple(_to_squares(part) for part in load_digits(SPLIT_SEED))
    else:
        parts = load_npz_images(source) if source.suffix == ARCHIVE else load_mnist_images(source)
    train, test = (_checked_for_network(data, part, shape, classes) for part in parts)
    return ImageSet(data, train, test)


def _to_squares(part: Samples) -> Samples:
    return replace(part, images=part.images.reshape(-1, _DIGITS_SIDE, _DIGITS_SIDE))


def _checked_for_network(data: str, part: Samples, shape: Shape, classes: int) -> Samples:
    """Return samples in binary32, with a channel axis. Raises InputError unless they fit the network."""
    images = part.images[..., None] if part.images.ndim == 3 else part.images
    if images.shape[1:] != (shape.h, shape.w, shape.c):
        sizes = "×".join(map(str, images.shape[1:])) or "single numbers"
        raise InputError(f"{data}: its images are {sizes}; the network takes {shape}")
    if len(images) > MAX_FRAMES:
        raise InputError(f"{data}: has {len(images):,} images of a kind; at most {MAX_FRAMES:,} are supported")
    if part.digits.max() >= classes:
        label_range = f"the network's classes are 0 to {classes - 1}"
        raise InputError(f"{data}: has label {part.digits.max()}; {label_range}")
    with np.errstate(over="ignore"):
        words = images.astype(np.float32)
    if not np.isfinite(words).all():
        raise InputError(f"{data}: has values beyond binary32")
    return Samples(words, part.digits)
