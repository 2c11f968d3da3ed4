"""Generated images: the same for a seed, of equal classes, recognisable by their templates alone."""

from dataclasses import replace

import numpy as np

from fanin.sim.learning.templates import Templates

SMALL = Templates(classes=10, train=200, test=100)


def test_the_seed_decides_and_classes_are_equally_frequent():
    train, test = SMALL(3)
    again, _ = SMALL(3)
    other, _ = SMALL(4)
    assert train.images.shape == (200, 144)
    assert train.images.dtype == np.float32
    assert np.bincount(train.digits).tolist() == [20] * 10
    assert np.bincount(test.digits).tolist() == [10] * 10
    assert np.array_equal(train.images, again.images)
    assert not np.array_equal(train.images, other.images)


def _nearest(train, test):
    """Accuracy of the class whose mean image correlates most."""
    means = np.stack([train.images[train.digits == label].mean(axis=0) for label in range(10)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return (np.argmax(test.images @ means.T, axis=1) == test.digits).mean()


def test_a_class_is_its_template_and_noise_and_motion_make_it_harder():
    still = replace(SMALL, shift=0, noise=0.1)
    assert _nearest(*still(0)) == 1
    harder = [_nearest(*replace(still, shift=shift, noise=noise)(0)) for shift, noise in ((3, 0.1), (0, 8.0))]
    assert max(harder) < 0.9


def test_without_noise_or_motion_images_of_a_class_differ_in_contrast_alone():
    train, _ = replace(SMALL, shift=0, noise=0.0)(1)
    images = train.images[train.digits == 4]
    contrasts = images @ images[0] / (images[0] @ images[0])
    np.testing.assert_allclose(images, contrasts[:, None] * images[0], rtol=1e-4)
    assert 1.5 < contrasts.max() / contrasts.min() < 3
