"""Effects of codecs: what is measured of runs, and the task that truncation hurts and INCEPTIONN does not."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.codec.facts import Inceptionn, Mode
from fanin.sim.codec import effects, tags, tasks
from fanin.sim.codec.effects import (
    CODECS,
    Effect,
    Run,
    Spread,
    fidelities,
    leg_traffic,
    more_epochs,
    run,
    spread,
)
from fanin.sim.codec.exchanges import Ring, WorkerAggregator
from fanin.sim.codec.tasks import TASKS, hdc
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import LegBytes, Traffic, Truncation, sum_legs
from fanin.sim.learning.mlp import Mlp, Samples

SMALL = Training(network=Mlp((64, 20, 10)), epochs=2)


def _run(last, **traffic):
    return Run((10.0, last), LegBytes(**traffic))


def test_a_spread_is_the_mean_and_the_deviation_of_a_sample():
    assert spread([1, 2, 3, 4]) == Spread(2.5, pytest.approx((5 / 3) ** 0.5))
    assert spread([7]) == Spread(7, 0)
    assert str(Spread(97.64, 0.26)) == "97.6 ± 0.3"
    assert str(Spread(-0.04, 0.5)) == "0.0 ± 0.5"


def test_losses_are_taken_seed_by_seed():
    """Both lose one point of different accuracies: the loss does not scatter, though accuracies do."""
    effect = Effect(
        [_run(89.0, uncompressed=8, sent=2), _run(95.0, uncompressed=8, sent=4)], [_run(90.0), _run(96.0)]
    )
    assert effect.lost == Spread(1, 0)
    assert effect.accuracy == spread([89, 95])
    assert effect.ratio == spread([4, 2])


def test_shares_are_those_of_all_values_that_travelled():
    values = np.array([0, 2.0**-11, 2.0**-6, 0.3, 1.5, 0.25, 2.0**-9, -(2.0**-9)], np.float32)
    codec, traffic = Inceptionn(10, Mode.PUBLISHED), Traffic()
    traffic.send("up", values, codec, times=3)
    traffic.send("down", np.zeros(8, np.float32), codec)
    whole = sum_legs(traffic.legs.values())
    assert whole.forms == (3 * 2 + 8, 9, 6, 3)
    assert traffic.legs["up"].shares == tags.shares(values, codec)
    assert Effect([Run((1.0,), whole)] * 2, []).shares[0] == Spread(pytest.approx(100 * 14 / 32), 0)
    with pytest.raises(ValueError, match="no value was sent by INCEPTIONN"):
        _ = LegBytes(8, 8).shares


def test_epochs_are_added_until_a_seed_ends_as_accurate_as_without_a_codec(monkeypatch):
    """Seed 0 is equal at once, seed 1 with four epochs more, seed 2 never."""
    tried = []

    def longer(training, exchange):
        tried.append((training.seed, training.epochs))
        return _run(95.0 if training.seed == 1 and training.epochs >= 24 else 80.0)

    monkeypatch.setattr(effects, "run", longer)
    ends = [_run(95.6), _run(90.0), _run(90.0)]
    effect = Effect(ends, [_run(96.0), _run(95.5), _run(95.5)])
    assert more_epochs(Training(), None, effect) == [0, 4, None]
    assert tried == [(1, 21), (1, 22), (1, 24), (2, 21), (2, 22), (2, 24), (2, 28)]


def test_every_codec_is_compared_with_none_over_the_seeds():
    ran = []
    codecs = {"none": None, "16 LSBs truncated": Truncation(16)}
    found = dict(effects.effects(SMALL, 2, codecs, lambda: ran.append(1)))
    assert len(ran) == 4
    assert found["none"].lost == Spread(0, 0)
    assert found["16 LSBs truncated"].ratio == Spread(2, 0)
    assert found["none"].runs[1] == run(replace(SMALL, seed=1), Ring())
    assert found["none"].runs[0] != found["none"].runs[1]


def test_sums_keep_direction_and_length_without_a_codec_and_lose_both_to_24_bits():
    codecs = {"none": None, "24": Truncation(24), "zero": Truncation(31)}
    found = fidelities(SMALL, codecs)
    assert found["none"].length.mean == pytest.approx(1, abs=1e-5)
    assert found["none"].cosine.mean == pytest.approx(1, abs=1e-5)
    assert 0.2 < found["24"].length.mean < 0.7
    assert 0.5 < found["24"].cosine.mean < 0.95
    assert found["zero"].cosine.mean == 0


def test_legs_have_the_bytes_of_an_average_iteration():
    rows = list(leg_traffic(SMALL, {"WA": WorkerAggregator(), "INC": Ring()}))
    size = 4 * 4 * SMALL.network.count / 1e6
    assert rows[:2] == [("WA", "gradients up", size, 1.0), ("WA", "weights down", size, 1.0)]
    assert rows[2][:2] == ("INC", "ring")


def test_the_hard_task_is_hurt_by_24_bits_and_not_by_inceptionn():
    training = TASKS["templates"]()
    names = ("none", "INCEPTIONN 2^-10, strict", "24 LSBs truncated")
    none, strict, truncated = (run(training, Ring(CODECS[name])).accuracies[-1] for name in names)
    assert none > 75
    assert strict > none - 1
    assert truncated < none - 10


def test_the_classifier_takes_the_size_of_its_images_from_mnist(monkeypatch, tmp_path):
    samples = Samples(np.zeros((8, 20), np.float32), np.arange(8))
    monkeypatch.setattr(tasks, "load_mnist", lambda folder: (samples, samples[:2]))
    training = hdc(tmp_path)
    assert training.network.widths == (20, *Mlp().widths[1:])
    assert [len(part) for part in training.data(1)] == [8, 2]
