"""More than two classes: one against the rest, on nodes that are played by the golden model."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_iris

from fanin.fixed import Loss
from fanin.glm.facts import PRESETS
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.train import train
from fanin.sim.glm.classes import together
from fanin.sim.glm.course import TrainRun
from fanin.sim.glm.train import GlmTraining, trainers
from fanin.sim.network import NetworkConfig
from fanin.sklearn import GlmClassifier

IRIS = load_iris()
NAMES = IRIS.target_names[IRIS.target]


def _train(shape, features, labels, *, network, course, pcap, progress, **run):
    epochs = list(train(features, labels, shape, **run))
    return TrainRun(models=[epoch.model for epoch in epochs], cycles=[7] * len(epochs))


@pytest.fixture
def golden_nodes(monkeypatch):
    made = []

    def make(*arguments, **options):
        made.append(arguments)
        return SimpleNamespace(train=_train, digest="none")

    monkeypatch.setattr("fanin.sim.glm.train.Cosim", make)
    return made


def options(path, **changes):
    np.savez(path, X=IRIS.data, y=NAMES)
    how = {"loss": Loss.LOGISTIC, "workers": 2, "precision": 4, "batch": 16, "epochs": 8, "lr": 8.0}
    how |= {"bias": True, "shuffle": True, "test": 0.25, "seed": 3, "clock_mhz": 250.0}
    how |= {"data": str(path), "node": PRESETS["tiny"], "network": NetworkConfig()}
    return GlmTraining(**how | changes)


def run(asked):
    runs = trainers(asked)
    return runs, together(runs, [trainer.compare(trainer.simulate()) for trainer in runs])


@pytest.mark.parametrize("loss", [Loss.LOGISTIC, Loss.HINGE])
def test_each_class_has_a_model_on_the_same_nodes_and_the_largest_sum_decides(tmp_path, golden_nodes, loss):
    runs, whole = run(options(tmp_path / "iris.npz", loss=loss))
    assert len(golden_nodes) == 1
    assert (
        [trainer.against_the_rest for trainer in runs] == list(whole.as_json()["classes"]) == sorted(set(NAMES))
    )
    assert np.array_equal(sum(trainer.dataset.labels for trainer in runs), np.ones(112))
    assert whole.model.weights.shape == whole.model.float64.shape == (3, 5)
    assert whole.bit_exact
    assert whole.cycles == 3 * 8 * 7
    said = whole.model.predict(whole.model.activations(IRIS.data)[0])
    assert np.mean(said == NAMES) == pytest.approx((112 * whole.accuracy + 38 * whole.test_accuracy) / 150)
    assert whole.accuracy > 0.8


def test_scikit_learns_estimator_learns_the_same_bits(tmp_path, golden_nodes):
    asked = options(tmp_path / "iris.npz", test=0.0)
    _, whole = run(asked)
    assert whole.test_accuracy is None
    same = {name: getattr(asked, name) for name in ("epochs", "batch", "lr", "precision", "workers")}
    theirs = GlmClassifier(**same, preset="tiny", random_state=asked.seed).fit(IRIS.data, NAMES)
    assert np.array_equal(theirs.model_.weights, whole.model.weights)
    assert theirs.model_.classes == whole.model.classes


def test_one_model_that_differs_is_told(tmp_path, golden_nodes):
    runs, _ = run(options(tmp_path / "iris.npz"))
    simulated = [trainer.simulate() for trainer in runs]
    simulated[1].models[0] = simulated[1].models[0] + 1
    whole = together(runs, [trainer.compare(one) for trainer, one in zip(runs, simulated, strict=True)])
    assert [result.bit_exact for result in whole.results] == [True, False, True]
    assert not whole.bit_exact


def test_the_model_of_all_classes_is_kept_in_one_file(tmp_path, golden_nodes):
    _, whole = run(options(tmp_path / "iris.npz"))
    with (tmp_path / "model.npz").open("wb") as file:
        whole.model.save(file)
    found = GlmModel.load(tmp_path / "model.npz")
    assert found.classes == whole.model.classes
    for ours, theirs in zip(whole.model.activations(IRIS.data), found.activations(IRIS.data), strict=True):
        assert ours.shape == (150, 3)
        assert np.array_equal(ours, theirs)


def test_two_classes_and_targets_are_one_run(tmp_path, golden_nodes):
    assert [run.against_the_rest for run in trainers(options(tmp_path / "a.npz", data="breast_cancer"))] == [
        None
    ]
    np.savez(tmp_path / "b.npz", X=IRIS.data, y=IRIS.target)
    targets = options(tmp_path / "c.npz", data=str(tmp_path / "b.npz"), loss=Loss.LINEAR, lr=0.05)
    assert [run.against_the_rest for run in trainers(targets)] == [None]
