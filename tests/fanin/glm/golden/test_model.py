"""A model's file, and what the model says of samples."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse

from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.golden import metrics
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.quantise import ColumnRanges, quantise
from fanin.glm.golden.targets import UNSCALED, TargetScale
from tests.support import new_seed

MODEL = GlmModel(
    loss=Loss.HINGE,
    weights=np.array([3 << 24, -(2 << 24), 1 << 20], dtype=np.int32),
    float64=np.array([3.0, -2.0, 0.0625]),
    ranges=ColumnRanges(np.array([0.0, -1.0]), np.array([2.0, 1.0])),
    precision=4,
    frac=24,
    bias=True,
    l2=0.25,
    classes=("no", "yes"),
    columns=("a", "b"),
    target="ill",
)
VARIANTS = [
    MODEL,
    replace(MODEL, classes=(-1.0, 1.0), loss=Loss.LOGISTIC, columns=(), target=""),
    replace(MODEL, classes=None, loss=Loss.LINEAR, scale=TargetScale(1000.0, 0.25)),
]


def saved(model, path):
    with path.open("wb") as file:
        model.save(file)
    return path


@pytest.mark.parametrize("model", VARIANTS)
def test_a_file_gives_the_model_back(tmp_path, model):
    found = GlmModel.load(saved(model, tmp_path / "model.npz"))
    assert found.weights.dtype == np.int32
    for field in fields(GlmModel):
        ours, theirs = getattr(model, field.name), getattr(found, field.name)
        if field.name == "ranges":
            ours, theirs = ours.low.tolist() + ours.high.tolist(), theirs.low.tolist() + theirs.high.tolist()
        assert np.array_equal(ours, theirs), field.name


@pytest.mark.parametrize("model", VARIANTS)
def test_it_says_what_the_golden_metrics_say(model):
    rng = np.random.default_rng(new_seed())
    features = rng.normal(size=(200, 2))
    sums, float64 = model.activations(features)
    q = quantise(features, model.ranges, 4, bias=True)
    assert np.array_equal(sums, metrics.activations(q, model.weights, precision=4, frac=24))
    assert np.array_equal(float64, q @ model.float64 / 16)
    assert np.array_equal(model.activations(sparse.csr_matrix(features))[0], sums)
    predicted = model.predict(sums)
    if model.classes is None:
        assert np.array_equal(predicted, 1000 + sums / 4)
    else:
        labels = (predicted == model.classes[1]).astype(float)
        assert metrics.score(sums, labels, model.loss).fit == 1
        assert set(predicted.tolist()) == set(model.classes)


OF_FOUR = GlmModel.of_classes([replace(MODEL, weights=MODEL.weights * n) for n in (1, -1, 0, 1)], tuple("abcd"))


def test_of_more_than_two_classes_the_largest_sum_decides_and_the_first_of_equal_ones(tmp_path):
    found = GlmModel.load(saved(OF_FOUR, tmp_path / "model.npz"))
    assert found.classes == tuple("abcd")
    samples = np.array([[2.0, -1.0], [0.0, 1.0]])
    sums, float64 = found.activations(samples)
    assert sums.shape == float64.shape == (2, 4)
    assert np.array_equal(sums[:, 0], MODEL.activations(samples)[0])
    assert np.array_equal(sums, sums[:, :1] * [1, -1, 0, 1])
    assert found.predict(sums).tolist() == ["a", "b"]


def test_sparse_columns_that_are_missing_are_zeros_and_all_else_is_refused():
    one, both = np.array([[1.5], [0.5]]), np.array([[1.5, 0], [0.5, 0]])
    expected = MODEL.activations(both)[0]
    assert np.array_equal(MODEL.activations(sparse.csr_matrix(one))[0], expected)
    for others in (one, np.zeros((1, 3)), sparse.csr_matrix((1, 3))):
        with pytest.raises(ValueError, match=r"[13] features, but the model has 2"):
            MODEL.activations(others)


def rewritten(path, **changes):
    arrays = dict(np.load(path)) | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"format": 1}, "a model of format 1; this version reads 2 and 3"),
        ({"weights": np.zeros(2, np.int32)}, "its arrays do not fit one another"),
        ({"classes": np.array(["a", "b", "c"])}, "its arrays do not fit one another"),
        ({"low": np.zeros(3)}, "its arrays do not fit one another"),
        ({"loss": "absolute"}, r"no model of fanin train \('ABSOLUTE'\)"),
        ({"frac": None}, "no model of fanin train"),
        ({"classes": np.array([{}, {}])}, "no model of fanin train"),
        ({"classes": np.array([1.0])}, "classes are float64 of shape"),
        ({"classes": np.array([])}, "classes are missing"),
        ({"weights": np.zeros(3, complex)}, "weights must be of int32"),
        ({"float64": np.array(["1"] * 3)}, "weights must be of int32"),
        ({"low": np.array([np.nan, 0])}, "low and high are no ranges"),
        ({"low": np.array([5.0, 5.0])}, "low and high are no ranges"),
        ({"low": np.array([-1.7e308, 0]), "high": np.array([1.7e308, 1])}, "low and high are no ranges"),
        ({"columns": np.array(["a"])}, "columns must be a name for each feature"),
        ({"precision": 1 << 40}, "precision must be in 1…8, not 1099511627776"),
        ({"precision": np.inf}, r"precision is float64 of shape \(\)"),
        ({"frac": -(1 << 40)}, "frac must be in 6…28"),
        ({"format": np.inf}, "format is float64"),
        ({"first_index": 5}, "first_index must be -1, 0 or 1, not 5"),
        ({"target_scale": np.nan}, "target_scale must be finite, not nan"),
        ({"bias": np.array([True])}, r"bias is bool of shape \(1,\)"),
    ],
)
def test_another_file_is_refused(tmp_path, changes, cause):
    path = saved(MODEL, tmp_path / "model.npz")
    rewritten(path, **changes)
    with pytest.raises(InputError, match=cause):
        GlmModel.load(path)


def test_a_model_of_format_2_has_targets_as_they_are(tmp_path):
    path = saved(VARIANTS[2], tmp_path / "model.npz")
    rewritten(path, format=2, target_offset=None, target_scale=None)
    assert GlmModel.load(path).scale == UNSCALED


@pytest.mark.parametrize("content", [b"", b"PK\3\4 torn", b"\x93NUMPY\1\0"])
def test_what_is_no_npz_is_refused(tmp_path, content):
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.npz: no model of fanin train"):
        GlmModel.load(path)
    with pytest.raises(InputError, match="No such file"):
        GlmModel.load(tmp_path / "none.npz")


def test_weights_alone_are_no_model(tmp_path):
    np.save(tmp_path / "model.npy", MODEL.weights)
    with pytest.raises(InputError, match="no model of fanin train"):
        GlmModel.load(tmp_path / "model.npy")
