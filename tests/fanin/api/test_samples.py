"""``fanin.train`` on samples in memory: the bits of a file with the same samples, repeatable."""

import csv

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_iris

import fanin
from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.sim.glm.tables import read_npz
from tests.fanin.cli.train_nodes import GoldenNodes

IRIS = load_iris()
NAMES = ["sepal length", "sepal, width", "petal length", "petal width"]
HOW = {"epochs": 3, "preset": "tiny", "workers": 2}


class Frame:
    """A DataFrame as pandas and polars have it, as far as fanin reads one."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self._columns[name]

    def __len__(self):
        return len(self._columns[self.columns[0]])

    def to_numpy(self):
        raise AssertionError("columns of different types have no common array")


@pytest.fixture(autouse=True)
def golden_nodes(monkeypatch):
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)


def frame(**more):
    return Frame(dict(zip(NAMES, IRIS.data.T, strict=True)) | more)


def words():
    return IRIS.target_names[IRIS.target]


def of_file(tmp_path, **options):
    with open(tmp_path / "iris.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*NAMES, "species"])
        rows.writerows([*map(repr, row), name] for row, name in zip(IRIS.data.tolist(), words(), strict=True))
    return fanin.train(tmp_path / "iris.csv", **HOW, **options)


def test_arrays_and_frames_give_the_model_of_a_file(tmp_path):
    expected = of_file(tmp_path).model
    objects = np.array(words(), dtype=object)  # as pandas has words
    series = np.array(words())
    for data, labels in ((IRIS.data, words()), (IRIS.data.tolist(), objects), (frame(), series)):
        run = fanin.train(data, labels, **HOW)
        assert np.array_equal(run.model.weights, expected.weights)
        assert run.model.classes == expected.classes
        assert run.bit_exact
    within = fanin.train(frame(species=objects), **HOW).model
    assert (within.columns, within.target) == (expected.columns, "species")
    first = fanin.train(Frame({"species": objects} | frame()._columns), target="species", **HOW).model
    assert np.array_equal(first.weights, expected.weights)


def test_sparse_samples_stay_sparse_and_give_the_bits_of_libsvm(tmp_path):
    rng = np.random.default_rng(1)
    X = sparse.random_array((120, 300), density=0.02, random_state=rng).toarray().round(3)
    X[0, 299] = 1.0  # LIBSVM files have no number of columns
    X, y = sparse.csr_array(X), rng.integers(0, 2, 120)
    dump_svmlight_file(X, y, str(tmp_path / "some.svm"), zero_based=False)
    how = HOW | {"preset": "demo"}
    file, memory = fanin.train(tmp_path / "some.svm", **how), fanin.train(X.tocsc(), y, **how)
    assert np.array_equal(file.model.weights, memory.model.weights)
    assert memory.values["layout"] == file.values["layout"]


def test_a_run_with_a_folder_is_repeated_from_the_file_beside_it(tmp_path):
    run = fanin.train(IRIS.data, IRIS.target % 2, output=tmp_path / "new" / "run", checkpoint=1, **HOW)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["run", "run-data.npz"]
    assert main(["rerun", str(run.folder), "-o", str(tmp_path / "again")]) == 0
    more = fanin.train(resume=run, epochs=5)
    assert np.array_equal(more.model.classes, (0, 1))
    assert len(more.losses) == 5
    assert main(["predict", str(run.folder), str(tmp_path / "new" / "run-data.npz")]) == 0


def test_targets_are_numbers():
    run = fanin.train(IRIS.data[:, :3], IRIS.data[:, 3], loss="linear", **HOW)
    assert run.test_r2 > 0.5
    assert 0 < run.test_rms_error < 1


MISSING = np.where(np.arange(150) == 7, np.nan, IRIS.data[:, 0])


@pytest.mark.parametrize(
    ("data", "labels", "cause"),
    [
        (IRIS.data, None, "labels: an array of samples needs one label per sample"),
        (IRIS.data, IRIS.target[1:], r"labels must be one per sample, 150, not of shape \(149,\)"),
        (frame(), IRIS.target[1:], r"labels must be one per sample, 150, not of shape \(149,\)"),
        (frame(label=IRIS.target), IRIS.target, "labels: the DataFrame has a column 'label', too"),
        (frame(age=MISSING), IRIS.target, "column 'age': the value of sample 7 is missing; fill it first"),
        (
            frame(city=np.array(["a", None] * 75)),
            IRIS.target,
            "column 'city': the value of sample 1 is missing",
        ),
        (frame(city=np.array(["ab", "c"] * 75)), IRIS.target, "column 'city': 'ab' is not a number"),
        ([[1.0], [1.0, 2.0]], [0, 1], "data: no array"),
        ("breast_cancer", [0, 1], "labels: a file has its own labels"),
        (np.array([["a"], ["b"]]), [0, 1], "features are <U1, not numbers"),
        (np.array([[np.nan], [1.0]]), [0, 1], r"features\[0, 0\] is nan, not a finite number"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(data, labels, cause):
    with pytest.raises(InputError, match=cause) as refusal:
        fanin.train(data, labels, **HOW)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"indices": np.array([0, 5])}, "no CSR matrix: .*indices must be < 3"),
        ({"indptr": np.array([0, 9, 2])}, "no CSR matrix"),
        ({"indices": np.array([-1, 0])}, "no CSR matrix"),
        ({"shape": np.array([2, 3, 4])}, "shape two of them"),
        ({"indptr": np.array([0.0, 1.0, 2.0])}, "must be integers"),
        ({"data": np.array([1.0, np.inf])}, r"data\[1\] is inf, not a finite number"),
        ({"labels": np.zeros(3)}, r"2 samples, but labels of shape \(3,\)"),
    ],
)
def test_a_file_that_is_no_csr_matrix_is_refused(tmp_path, change, cause):
    whole = {"data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.arange(3), "shape": np.array([2, 3])}
    np.savez(tmp_path / "whole.npz", labels=np.arange(2), **whole)
    features, labels = read_npz(tmp_path / "whole.npz")
    assert (features.toarray().tolist(), labels.tolist()) == ([[1, 0, 0], [0, 0, 1]], [0, 1])
    np.savez(tmp_path / "other.npz", **({"labels": np.arange(2)} | whole | change))
    with pytest.raises(InputError, match=cause):
        read_npz(tmp_path / "other.npz")
