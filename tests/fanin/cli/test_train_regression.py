"""``fanin train --loss linear``: targets of any size, R² in place of an accuracy."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.glm.golden.metrics import r_squared
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.targets import TargetScale
from fanin.sklearn import GlmRegressor
from tests.support import new_seed

PRICES = 250_000, 3_000  # mean, and of each unit of the synthetic targets
RATE = 1
NODES = ("--preset", "tiny", "--workers", "2")
pytestmark = pytest.mark.verilator


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    """A folder with samples whose targets no node's number would hold, and the run that learned them."""
    folder = tmp_path_factory.mktemp("regression")
    features, targets = make_regression(100, 6, noise=2.0, random_state=3)
    prices = PRICES[0] + PRICES[1] * targets
    np.savez(folder / "prices.npz", X=features, y=prices)
    command = f"train {folder / 'prices.npz'} --loss linear --preset tiny --workers 2 --epochs 6 --lr {RATE} -o"
    assert main([*command.split(), str(folder / "run")]) == 0
    return folder, features, prices


def test_the_run_says_r_squared_and_losses_in_the_targets_units(prices):
    folder, features, targets = prices
    found = json.loads((folder / "run" / "run.json").read_text())
    model = GlmModel.load(folder / "run" / "model.npz")
    predicted = model.predict(model.activations(features)[0])
    train, held_out = train_test_split(np.arange(100), test_size=0.25, random_state=0)
    assert found["test_r2"] == pytest.approx(r2_score(targets[held_out], predicted[held_out]))
    rms = root_mean_squared_error(targets[held_out], predicted[held_out])
    assert found["test_rms_error"] == pytest.approx(rms)
    last = found["epochs"][-1]
    assert last["r2"] == pytest.approx(r2_score(targets[train], predicted[train]))
    assert last["loss"] == pytest.approx(np.mean((targets[train] - predicted[train]) ** 2) / 2)
    assert found["chance_loss"] == pytest.approx(np.var(targets[train]) / 2)
    assert found["float64_r2"][-1] == pytest.approx(last["r2"], abs=0.01)
    assert last["r2"] > found["epochs"][0]["r2"] > 0
    assert not any("accuracy" in key for key in [*found, *last])


def test_the_default_rate_learns_targets_too(prices, tmp_path):
    """0.05 was the former default for every file."""
    folder, _, _ = prices
    runs = {}
    for name, options in {"default": [], "former": ["--lr", "0.05"]}.items():
        command = ["train", str(folder / "prices.npz"), "--loss", "linear", *NODES]
        assert main([*command, *options, "-o", str(tmp_path / name)]) == 0
        runs[name] = json.loads((tmp_path / name / "run.json").read_text())
    assert runs["default"]["options"]["lr"] == 0.5
    assert runs["default"]["test_r2"] > 0.7 > 0.4 > runs["former"]["test_r2"]
    assert runs["default"]["test_rms_error"] < 0.7 * runs["former"]["test_rms_error"]


def test_nothing_that_people_read_speaks_of_an_accuracy(prices, capsys):
    folder, _, _ = prices
    page = (folder / "run" / "report.html").read_text()
    assert "test R²" in page
    assert "R² of training samples" in page
    assert main(["predict", str(folder / "run"), str(folder / "prices.npz")]) == 0
    assert "accuracy" not in capsys.readouterr().out


def test_the_estimator_learns_the_same_model(prices, tmp_path):
    folder, features, targets = prices
    command = f"train {folder / 'prices.npz'} --loss linear --preset tiny --workers 2 --epochs 2 --test 0 -o"
    assert main([*command.split(), str(tmp_path / "run"), "--lr", str(RATE)]) == 0
    how = {"preset": "tiny", "workers": 2, "epochs": 2, "precision": 4, "lr": RATE}
    ours, theirs = GlmModel.load(tmp_path / "run" / "model.npz"), GlmRegressor(**how).fit(features, targets)
    assert np.array_equal(ours.weights, theirs.model_.weights)
    assert ours.scale == theirs.model_.scale
    assert np.array_equal(ours.predict(ours.activations(features)[0]), theirs.predict(features))


def test_r_squared_is_scikit_learns():
    rng = np.random.default_rng(new_seed())
    for spread in (0.0, 1e-9, 1.0, 1e12):
        targets = 5 + spread * rng.normal(size=20)
        for predictions in (targets, np.full(20, targets.mean()), targets + rng.normal(size=20)):
            assert r_squared(predictions, targets) == pytest.approx(r2_score(targets, predictions), rel=1e-6)


@pytest.mark.parametrize(
    ("targets", "offset", "scale"),
    [
        ([1.0, 3.0], 2.0, 1.0),
        ([0.0, 10.0, 5.0], 5.0, 8.0),
        ([7.0, 7.0], 7.0, 1.0),
        ([-0.5, 0.75], 0.125, 1.0),
        ([-0.25, 0.25], 0.0, 0.25),
    ],
)
def test_targets_are_moved_and_halved_or_doubled(targets, offset, scale):
    found = TargetScale.of(np.array(targets))
    assert (found.offset, found.scale) == (offset, scale)
    sums = found.to_sums(np.array(targets))
    assert np.abs(sums).max() <= 1
    assert found.to_targets(sums).tolist() == targets


@pytest.mark.parametrize("targets", [[1e308, -1e308, 1e308], [1.5e308, 1.5e308], [np.inf, 0.0]])
def test_targets_beyond_float64_are_refused(targets):
    with pytest.raises(InputError, match="more than float64 holds"):
        TargetScale.of(np.array(targets))
