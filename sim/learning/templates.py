"""Generated images of many classes, without a download: a smooth random template per class, distorted.

The task is hard for codecs that truncate bits. Truncation shortens the sums, and with many classes and few
epochs a training needs its full rate. See docs/systems/gradient-training.md, "A task that truncation hurts".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from fanin.sim.learning.mlp import Samples


@dataclass(frozen=True)
class Templates:
    """Images of ``side`` × ``side`` pixels: a class's template, shifted, with random contrast and ``noise``.

    A template is Gaussian noise, smoothed over a pixel and scaled to a standard deviation of 1. It is shifted
    by up to ``shift`` pixels in each direction and multiplied by 0.5 to 1.5; ``noise`` is the standard
    deviation of the added noise. Classes are equally frequent among the ``train`` and among the ``test``
    images, as far as their numbers allow. The same seed gives the same bits.
    """

    classes: int = 100
    side: int = 12
    train: int = 2000
    test: int = 2000
    shift: int = 1
    noise: float = 0.7

    def __call__(self, seed: int) -> tuple[Samples, Samples]:
        """Return training and held-out samples, one image per row."""
        rng = np.random.default_rng(seed)
        padded_side = self.side + 2 * self.shift
        templates = ndimage.gaussian_filter(
            rng.standard_normal((self.classes, padded_side, padded_side)), (0, 1, 1)
        )
        templates /= templates.std(axis=(1, 2), keepdims=True)
        train, test = (self._samples(templates, rng, count) for count in (self.train, self.test))
        return train, test

    def _samples(self, templates: np.ndarray, rng: np.random.Generator, count: int) -> Samples:
        labels = rng.permutation(np.arange(count) % self.classes)
        rows, columns = rng.integers(0, 2 * self.shift + 1, (2, count, 1)) + np.arange(self.side)
        images = templates[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
        images = images * rng.uniform(0.5, 1.5, (count, 1, 1)) + self.noise * rng.standard_normal(images.shape)
        return Samples(images.reshape(count, -1).astype(np.float32), labels.astype(np.int64))
