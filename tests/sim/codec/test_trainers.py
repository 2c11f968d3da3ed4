"""Distributed training: reproducible, the same for all exact exchanges, and it learns with every codec."""

from itertools import islice

import numpy as np
import pytest

from fanin.codec.facts import Bfp, Inceptionn, Mode
from fanin.sim.codec import gradients as stages
from fanin.sim.codec import tags
from fanin.sim.codec.exchanges import Ring, RingOfRings, WorkerAggregator
from fanin.sim.codec.trainers import Training
from fanin.sim.codec.wire import Traffic, Truncation
from fanin.sim.learning.mlp import Mlp, load_digits

NETWORK = Mlp(widths=(64, 40, 40, 40, 40, 10))
SHORT = Training(network=NETWORK, epochs=2)


def test_a_wrong_command_line_is_refused_before_the_training(monkeypatch, capsys):
    monkeypatch.setattr(stages, "gradients", lambda: pytest.fail("trains"))
    monkeypatch.setattr("sys.argv", ["gradients"])
    with pytest.raises(SystemExit, match="2"):
        stages.main()
    assert "the following arguments are required: folder" in capsys.readouterr().err


def _final(training, exchange):
    *_, last = training.steps(exchange, Traffic())
    return last.parameters


def test_the_same_seed_gives_the_same_bits():
    first, again = (_final(SHORT, Ring(Inceptionn())) for _ in range(2))
    assert np.array_equal(first, again)
    other = Training(network=NETWORK, epochs=2, seed=1)
    assert not np.array_equal(first, _final(other, Ring(Inceptionn())))


def test_workers_share_the_digits_and_none_twice_in_an_epoch(monkeypatch):
    seen = []
    exact = Mlp.gradient

    def watched(self, vector, samples):
        seen.extend(sample.tobytes() for sample in samples.images)
        return exact(self, vector, samples)

    monkeypatch.setattr(Mlp, "gradient", watched)
    run = list(Training(network=NETWORK, epochs=1).run(Ring()))
    assert run[0].iterations == 13
    assert len(seen) == 13 * 4 * 25
    everything = [sample.tobytes() for sample in load_digits(0)[0].images]
    assert len(set(seen)) > 0.99 * len(set(everything)) * len(seen) / len(everything)


def test_four_workers_step_as_one_with_their_samples_would():
    """The mean of the workers' gradients is the gradient of all their samples."""
    four = next(SHORT.steps(WorkerAggregator(), Traffic()))
    mean = sum(four.gradients) / np.float32(4)
    vector = NETWORK.initial(0)
    SHORT.descent.step(vector, np.zeros_like(vector), mean, 0.0)
    np.testing.assert_allclose(four.parameters, vector, atol=1e-7)
    norms = [np.linalg.norm(gradient) for gradient in four.gradients]
    assert min(norms) > 0
    assert len(set(norms)) == 4


@pytest.mark.parametrize("exchange", [Ring(), WorkerAggregator(), RingOfRings(2)], ids=str)
def test_exact_exchanges_train_alike(exchange):
    """But for the order of the additions."""
    np.testing.assert_allclose(_final(SHORT, exchange), _final(SHORT, Ring()), atol=1e-3)


@pytest.mark.parametrize(
    "codec", [None, Truncation(22), Inceptionn(), Inceptionn(6, Mode.PUBLISHED), Bfp()], ids=str
)
def test_a_small_network_learns_the_digits_over_a_compressing_ring(codec):
    epochs = list(Training(network=Mlp(widths=(64, 100, 10)), epochs=8).run(Ring(codec)))
    assert [epoch.number for epoch in epochs] == list(range(1, 9))
    assert epochs[-1].accuracy > 0.9
    assert epochs[-1].traffic.total.ratio >= (1 if codec is None else 2)


def test_traffic_is_counted_epoch_by_epoch():
    first, second = Training(network=NETWORK, epochs=2).run(WorkerAggregator())
    size = 13 * 4 * NETWORK.count * 4
    for epoch in (first, second):
        assert {name: leg.sent for name, leg in epoch.traffic.legs.items()} == {
            "gradients up": size,
            "weights down": size,
        }


def test_gradients_of_three_stages_shrink_and_are_saved_as_they_are(tmp_path):
    found = stages.gradients(training=Training(network=Mlp(widths=(64, 100, 10)), epochs=15))
    assert list(found) == ["early", "middle", "final"]
    norms = [np.linalg.norm(values) for values in found.values()]
    assert norms[0] > norms[1] > norms[2] > 0
    for path, values in zip(stages.save(found, tmp_path / "new"), found.values(), strict=True):
        assert np.array_equal(np.frombuffer(path.read_bytes(), "<f4"), values)
    rows = stages.table(found)
    assert len(rows) == 2 + 3 * (3 * 2 + 1)
    assert "| the paper's HDC | 2^-10 | published | 92.0 % | 6.5 % | 1.5 % | 0.0 % | 2.76 |" in rows


def test_a_histogram_has_the_share_of_each_bin_and_no_empty_ones():
    values = np.array([0.01, 0.02, 0.02, -0.99], np.float32)
    assert stages.histogram(values) == [(-63 / 64, 25.0), (1 / 64, 75.0)]


def test_without_a_codec_the_ring_trains_as_plain_descent_on_all_samples():
    """Momentum and decay, written on their own, with everyone's samples."""
    samples, _ = load_digits(0)
    rng = np.random.default_rng(0)
    shards = np.array_split(rng.permutation(len(samples)), 4)
    orders = [rng.permutation(shard) for shard in shards]
    vector = NETWORK.initial(0)
    velocity = np.zeros_like(vector)
    for at in range(0, 75, 25):
        chosen = np.concatenate([order[at : at + 25] for order in orders])
        gradient = NETWORK.gradient(vector, samples[chosen]) + np.float32(5e-5) * vector
        velocity = np.float32(0.9) * velocity - np.float32(0.1) * gradient
        vector = vector + velocity
    *_, last = islice(SHORT.steps(Ring(), Traffic()), 3)
    np.testing.assert_allclose(last.parameters, vector, atol=2e-6)


@pytest.mark.parametrize("master", [False, True])
def test_truncated_weights_stay_truncated_unless_a_whole_copy_is_kept(master):
    """Most updates are less than the last bit that is sent: without a whole copy they are lost."""
    training = Training(network=NETWORK, epochs=2, weights=Truncation(20), master=master)
    for step in training.steps(WorkerAggregator(), Traffic()):
        assert not (step.parameters.view(np.uint32) & 0xFFFFF).any()
    exact = _final(SHORT, WorkerAggregator())
    distance = np.linalg.norm(_final(training, WorkerAggregator()) - exact) / np.linalg.norm(exact)
    assert bool(distance < 0.2) is master


def test_shares_bits_and_ratios_of_tags():
    values = np.array([0, 2.0**-11, 2.0**-6, 0.3, 1.5, 0.25, 2.0**-9, -(2.0**-9)], np.float32)
    published = tags.shares(values, Inceptionn(10, Mode.PUBLISHED))
    assert published == (25, 37.5, 25, 12.5)
    assert tags.bits(published) == 0.25 * 2 + 0.375 * 10 + 0.25 * 18 + 0.125 * 34
    assert tags.ratio(published) == 32 / tags.bits(published)
    assert tags.shares(values, Inceptionn(10)) == (25, 25, 37.5, 12.5)


def test_table_iii_is_whole():
    for rows in tags.TABLE_III.values():
        assert [sum(row) for row in rows] == pytest.approx([100] * 3, abs=0.15)
    assert tags.ratio(tags.TABLE_III["HDC"][2]) == pytest.approx(14.6, abs=0.1)
