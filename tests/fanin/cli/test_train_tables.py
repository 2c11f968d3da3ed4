"""``fanin train`` with its defaults on ten tables, beside scikit-learn's LogisticRegression."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fanin
from tests.fanin.cli.train_nodes import GoldenNodes

PAGE = Path(__file__).parents[3] / "docs/reference/data.md"
SPLITS = range(4)
POINTS = 2.0
#: Slack of a documented percentage, of four splits, for another version of scikit-learn.
SLACK = 0.3


def _rows(name):
    """The table's rows of the page: name, then LogisticRegression's and fanin's accuracy in percent."""
    found = re.findall(rf"^\| {name} \|.*\| ([\d.]+) % \| ([\d.]+) % \|$", PAGE.read_text(), re.MULTILINE)
    return [tuple(map(float, figures)) for figures in found]


def _diabetes():
    X, targets = datasets.load_diabetes(return_X_y=True)
    return X, targets > np.median(targets)


def _categories():
    """Five numbers of different units, and four categories as indicators."""
    rng = np.random.default_rng(4)
    sizes = (7, 16, 5, 40)
    drawn = [rng.integers(0, size, 3000) for size in sizes]
    indicators = np.hstack([np.eye(size)[column] for size, column in zip(sizes, drawn, strict=True)])
    units = np.array([1, 10, 100, 1, 1])
    numbers = rng.normal(size=(3000, 5)) * units
    sums = indicators @ rng.normal(size=sum(sizes)) + numbers @ (rng.normal(size=5) / units)
    return np.hstack([numbers, indicators]), sums + rng.logistic(size=3000) > 1


def _counts():
    X, y = datasets.make_multilabel_classification(2000, 60, n_classes=1, random_state=6)
    return X, y.ravel()


def _made(samples, features, **how):
    return lambda: datasets.make_classification(samples, features, **how)


TABLES = {
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "diabetes": _diabetes,
    "balanced": _made(2000, 20, n_informative=8, n_redundant=4, random_state=0),
    "rare": _made(2000, 20, n_informative=6, weights=[0.9], flip_y=0.02, random_state=1),
    "noisy": _made(1500, 40, n_informative=5, flip_y=0.2, random_state=2),
    "categories": _categories,
    "counts": _counts,
    "blobs": lambda: datasets.make_blobs(1000, 10, centers=5, cluster_std=6, random_state=5),
}


def _regression(X, y, split):
    """The accuracy of scikit-learn on the held-out samples of a split."""
    parts = train_test_split(np.arange(len(y)), test_size=0.25, stratify=y, random_state=split)
    train, held_out = map(np.sort, parts)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X[train], y[train])
    return model.score(X[held_out], y[held_out])


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_the_defaults_are_within_two_points_of_logistic_regression(name, tmp_path, monkeypatch):
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)  # with the bits of the RTL
    X, y = TABLES[name]()
    y = y.astype(int)
    table = np.column_stack([X, y])
    header = ",".join([*(f"x{k}" for k in range(X.shape[1])), "label"])
    np.savetxt(tmp_path / f"{name}.csv", table, "%.17g", delimiter=",", header=header, comments="")
    ours = [fanin.train(tmp_path / f"{name}.csv", seed=split).values["test_accuracy"] for split in SPLITS]
    theirs = [_regression(X, y, split) for split in SPLITS]
    found = 100 * float(np.mean(theirs)), 100 * float(np.mean(ours))
    assert found[1] > found[0] - POINTS
    assert _rows(name) == [pytest.approx(found, abs=SLACK)]
