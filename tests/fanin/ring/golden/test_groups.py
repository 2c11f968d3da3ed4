"""Exchanges in groups: the rings' golden models one after the other, equal bits at all workers, bytes."""

from itertools import product

import numpy as np
import pytest

from fanin.codec.facts import Bfp, Inceptionn
from fanin.ring.facts import RingConfig
from fanin.ring.golden import groups
from fanin.ring.golden.all_reduce import all_reduce
from fanin.ring.groups import Groups, Scheme, one_ring

CODECS = {"none": None, "bfp": Bfp(), "inceptionn": Inceptionn(bound=6, group=8)}
LEVELS = list(product(Scheme, Scheme))


def config_of(codec=None):
    return RingConfig(lanes=8, frame_words=4, slice_frames=2, buffer_frames=4, replay_frames=4, codec=codec)


def gradients_of(workers, count=333):
    return list(np.random.default_rng(7).normal(0, 0.1, (workers, count)).astype(np.float32))


@pytest.mark.parametrize("levels", LEVELS)
def test_what_has_no_rounding_is_numpys_sum(levels):
    given = list(np.random.default_rng(3).integers(-1000, 1000, (16, 500)).astype(np.float32))
    found = groups.exchange(given, config_of(), Groups(4, 4, *levels).plan)
    np.testing.assert_array_equal(found, np.sum(given, axis=0))


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("codec", CODECS)
def test_all_workers_end_with_the_same_bits(codec, levels):
    config, plan = config_of(CODECS[codec]), Groups(3, 3, *levels).plan
    given = gradients_of(9)
    held = groups._final_vectors(given, plan, lambda number, ring, own: all_reduce(own, config))
    assert {values.tobytes() for values in held[: plan.workers]} == {
        groups.exchange(given, config, plan).tobytes()
    }
    np.testing.assert_allclose(held[0], np.sum(given, axis=0), atol=0.3)


@pytest.mark.parametrize("codec", CODECS)
def test_a_ring_of_rings_is_three_rings_one_after_the_other(codec):
    config, given = config_of(CODECS[codec]), gradients_of(4)
    below = [all_reduce(given[:2], config), all_reduce(given[2:], config)]
    total = all_reduce(below, config)
    down = all_reduce([total, np.zeros_like(total)], config)
    assert groups.exchange(given, config, Groups(2, 2).plan).tobytes() == down.tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_an_aggregator_adds_one_after_the_other_and_sends_each_the_same(codec):
    config, given = config_of(CODECS[codec]), gradients_of(4)
    zeros = np.zeros_like(given[0])

    def up(members):
        total = zeros
        for own in members:
            total = all_reduce([total, own], config)
        return total

    total = up([up(given[:2]), up(given[2:])])
    at_aggregator = all_reduce([total, zeros], config)
    at_worker = all_reduce([at_aggregator, zeros], config)
    plan = Groups(2, 2, Scheme.AGGREGATOR, Scheme.AGGREGATOR).plan
    assert groups.exchange(given, config, plan).tobytes() == at_worker.tobytes()


def test_the_way_down_changes_the_sign_of_a_zero_alone():
    given = [np.full(64, -0.0, np.float32)] * 4
    assert np.signbit(groups.exchange(given, config_of(), one_ring(4))).all()
    found = groups.exchange(given, config_of(), Groups(2, 2).plan)
    assert not np.signbit(found).any()
    assert not found.any()


def test_bytes_without_a_codec_are_those_of_the_slices():
    """64 words are 4 segments of 2 slices for two nodes, each of 2 frames of 4 words and a header's beat."""
    given = gradients_of(4, count=512)
    assert groups.data_bytes(given[:2], config_of(), one_ring(2)) == [4 * 2 * 2 * 2 * (4 + 1) * 32]
    up, above, down = groups.data_bytes(given, config_of(), Groups(2, 2).plan)
    assert up == 2 * above == down


def test_what_a_codec_saves_shows_in_the_bytes():
    given, plan = gradients_of(4), Groups(2, 2).plan
    plain = sum(groups.data_bytes(given, config_of(), plan))
    assert sum(groups.data_bytes(given, config_of(Bfp()), plan)) < 0.65 * plain
    zeros = [np.zeros_like(own) for own in given]
    config = config_of(CODECS["inceptionn"])
    assert sum(groups.data_bytes(zeros, config, plan)) < sum(groups.data_bytes(given, config, plan))


def test_another_number_of_gradients_is_refused():
    with pytest.raises(ValueError, match="gradients must be those of 4 workers, not of 3"):
        groups.exchange(gradients_of(3), config_of(), Groups(2, 2).plan)
