"""Engines that share a vector: each stripe is an all-reduce of its own."""

import numpy as np
import pytest

from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import all_reduce, striped

CONFIG = RingConfig(lanes=8)


def test_stripes_are_reduced_one_by_one():
    given = np.random.default_rng(3).normal(0, 1, (3, 100)).astype(np.float32)
    apart = [all_reduce(list(given[:, part]), CONFIG) for part in (slice(0, 56), slice(56, 100))]
    np.testing.assert_array_equal(striped(list(given), CONFIG, 2), np.concatenate(apart))
    np.testing.assert_array_equal(striped(list(given), CONFIG, 1), all_reduce(list(given), CONFIG))
    # the order of the additions of a value follows from its place in its stripe
    assert not np.array_equal(striped(list(given), CONFIG, 2), all_reduce(list(given), CONFIG))


def test_a_vector_may_have_fewer_words_than_there_are_engines():
    given = [np.full(3, value, np.float32) for value in (1, 2)]
    assert striped(given, CONFIG, 4).tolist() == [3, 3, 3]


@pytest.mark.parametrize("sizes", [(100, 99), (99, 100), (0, 0), ()])
def test_vectors_that_are_not_alike_or_empty_are_refused(sizes):
    with pytest.raises(ValueError, match=r"gradients must have one length|at least one array"):
        striped([np.zeros(size, np.float32) for size in sizes], CONFIG, 4)
