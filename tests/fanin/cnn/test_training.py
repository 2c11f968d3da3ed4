"""Hyper-parameters, the order of frames, and the jobs of a training."""

import numpy as np
import pytest

from fanin.cnn.training import Job, Place, Schedule, Training


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("constant", [1, 1, 1, 1]),
        ("cosine", [1, 0.853553, 0.5, 0.146447]),
        ("step:2:0.1", [1, 1, 0.1, 0.1]),
        ("step:1:.5", [1, 0.5, 0.25, 0.125]),
        ("step:30:1e-2", [1, 1, 1, 1]),
        ("step:1:0.33333333", [1, 0.333333, 0.111111, 0.037037]),
    ],
)
def test_a_schedule_scales_the_rate_by_epoch(text, shares):
    schedule = Schedule.parse(text)
    assert [schedule.factor_at(epoch, 4) for epoch in range(4)] == pytest.approx(shares, abs=1e-6)
    assert Schedule.parse(str(schedule)) == schedule


@pytest.mark.parametrize(
    "text", ["", "linear", "step", "step:0:0.1", "step:3:0", "step:3:2", "step:a:0.1", "step:3:nan"]
)
def test_other_schedules_are_refused(text):
    with pytest.raises(ValueError, match="schedule must be constant, cosine or step:EPOCHS:FACTOR"):
        Schedule.parse(text)


def test_eta_is_rounded_once_and_a_short_batch_has_its_own():
    job = Job.of(100, 32, 0.1, 0.9)
    assert (job.eta, job.last_eta, job.momentum) == (
        np.float32(-0.1 / 32),
        np.float32(-0.1 / 4),
        np.float32(0.9),
    )
    assert Job.of(96, 32, 0.1, 0.9).last_eta == job.eta
    assert Job.of(5, 32, 0.1, 0.9).last_eta == np.float32(-0.1 / 5)


def test_every_epoch_has_an_order_of_its_own_that_the_seed_decides():
    training = Training(seed=3)
    first, second = training.order(0, 50), training.order(1, 50)
    assert sorted(first) == sorted(second) == list(range(50))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, Training(seed=3, epochs=2).order(0, 50))
    assert not np.array_equal(first, Training(seed=4).order(0, 50))
    assert np.array_equal(first, np.random.default_rng([3, 0]).permutation(50))


def test_a_stretch_is_an_epoch_or_so_many_batches():
    whole = list(Training(epochs=2, schedule=Schedule.parse("step:1:0.5")).stretches(100))
    assert [(s.epoch, s.first, s.end, s.job) for s in whole] == [
        (0, 0, 100, Job.of(100, 32, 0.1, 0.9)),
        (1, 0, 100, Job.of(100, 32, 0.05, 0.9)),
    ]
    parts = list(Training(epochs=1, checkpoint=2).stretches(150))
    assert [(s.first, s.end) for s in parts] == [(0, 64), (64, 128), (128, 150)]
    assert parts[0].job.last_eta == parts[0].job.eta
    assert parts[2].job == Job.of(22, 32, 0.1, 0.9)


def test_stretches_follow_one_another_from_any_place_on():
    training = Training(epochs=2, checkpoint=2)
    whole = list(training.stretches(150))
    assert [s.start_place for s in whole] == [Place(), *(s.end_place for s in whole[:-1])]
    assert [s.end_place for s in whole[2:4]] == [Place(1, 0), Place(1, 64)]
    for number, stretch in enumerate(whole):
        assert list(training.stretches(150, stretch.start_place)) == whole[number:]
    assert list(training.stretches(150, Place(2))) == []
    assert Place(1, 64).trained(150) == 214


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("epochs", 0, "epochs must be in 1…100,000, not 0"),
        ("batch", 0, "batch must be in 1…16,777,215, not 0"),
        ("rate", float("nan"), "lr must be in 0…1,000,000, not nan"),
        ("rate", -0.1, "lr must be in "),
        ("momentum", 1.5, "momentum must be in 0…1, not 1.5"),
        ("seed", -1, "seed must be in 0…4,294,967,295, not -1"),
        ("checkpoint", 0, "checkpoint must be in 1…16,777,216, not 0"),
    ],
)
def test_a_parameter_out_of_its_limits_is_named(field, value, said):
    with pytest.raises(ValueError, match=said):
        Training(**{field: value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": 3e-37}, "in epoch 15 of schedule constant, lr is 3e-37"),
        ({"rate": 3e-36, "schedule": "cosine"}, "in epoch 15 of schedule cosine, lr is 3.27"),
        ({"schedule": "step:1:1e-3"}, "in epoch 15 of schedule step:1:0.001, lr is 1e-43"),
        ({"schedule": "step:1:1e-30"}, "in epoch 15 of schedule step:1:1e-30, lr is 0"),
        ({"momentum": 1e-38}, "momentum must be 0 or at least 2.-126, not 1e-38"),
    ],
)
def test_what_hardware_would_take_for_0_is_refused(changes, said):
    """Batches of 32, and 15 epochs."""
    if text := changes.get("schedule"):
        changes = changes | {"schedule": Schedule.parse(text)}
    with pytest.raises(ValueError, match=said):
        Training(**changes)


def test_the_smallest_rates_that_hardware_has_are_none_of_that():
    Training(rate=0, momentum=0)
    job = next(Training(rate=32 * 2.0**-126, momentum=2.0**-126).stretches(64)).job
    assert (job.eta, job.momentum) == (np.float32(-(2.0**-126)), np.float32(2.0**-126))
