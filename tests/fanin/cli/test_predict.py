"""``fanin predict``: a model on files of every kind, with and without labels, and what is refused."""

import csv
import json

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer
from sklearn.metrics import r2_score

from fanin import fixed
from fanin.cli.main import main
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.model import GlmModel
from fanin.glm.golden.train import train
from fanin.sim.glm import data
from tests.fanin.cli.json_page import documented

EPOCHS, BATCH, RATE = 5, 32, 0.5
CANCER = load_breast_cancer()
WORDS = CANCER.target_names[CANCER.target]


def trained(source, loss=Loss.LOGISTIC):
    """The golden model of a set, as ``fanin train`` writes it."""
    found = data.load(source, loss, test=0)
    node = PRESETS["demo"]
    samples, columns = found.features.shape
    shape = TrainShape(node=node, workers=1, samples=samples, columns=columns, batch=BATCH)
    labels = fixed.labels(found.labels, loss, node.frac)
    rate = fixed.learning_rate(RATE / BATCH)
    golden = list(train(found.features, labels, shape, loss=loss, rate=rate, epochs=EPOCHS))[-1]
    how = {"precision": 4, "batch": BATCH, "rate": RATE / BATCH, "epochs": EPOCHS}
    float64 = list(train_float64(found.features, found.labels, loss=loss, **how))[-1]
    return GlmModel(
        loss=loss,
        weights=golden.model,
        float64=float64,
        ranges=found.ranges,
        precision=4,
        frac=node.frac,
        bias=True,
        l2=0.0,
        classes=found.classes if loss.classifies else None,
        columns=found.columns,
        target=found.target,
        first_index=found.first_index,
        scale=found.scale,
    )


def write_csv(path, names, columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CSV file with words as labels, and the model of it."""
    folder = tmp_path_factory.mktemp("predict")
    write_csv(folder / "all.csv", [*CANCER.feature_names, "diagnosis"], [*CANCER.data.T, WORDS])
    with (folder / "model.npz").open("wb") as file:
        trained(str(folder / "all.csv")).save(file)
    return folder


def run(capsys, *arguments):
    status = main(["predict", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_predictions_and_both_models_accuracies(capsys, folder, tmp_path):
    status, out, _ = run(capsys, folder, folder / "all.csv", "--json", "-o", tmp_path / "found.csv")
    found = documented("predict", out)
    predicted = np.array(found["predictions"])
    assert (status, found["samples"]) == (0, 569)
    assert found["accuracy"] == np.mean(predicted == WORDS) > 0.9
    rows = list(csv.DictReader((tmp_path / "found.csv").read_text().splitlines()))
    assert [row["prediction"] for row in rows] == found["predictions"]
    assert found["differ"] == sum(row["prediction"] != row["float64_prediction"] for row in rows)
    float64 = np.array([row["float64_prediction"] for row in rows])
    assert found["float64_accuracy"] == np.mean(float64 == WORDS)
    assert all((float(row["sum"]) >= 0) == (row["prediction"] == "malignant") for row in rows)
    _, out, _ = run(capsys, folder, folder / "all.csv")
    assert f"differ in  {found['differ']} of 569 samples: fixed point and float64" in out


def test_columns_go_by_name_and_labels_may_be_absent(capsys, folder, tmp_path):
    names, order = CANCER.feature_names, np.random.default_rng(1).permutation(30)
    write_csv(tmp_path / "new.csv", ["id", *names[order]], [range(569), *CANCER.data.T[order]])
    _, out, _ = run(capsys, folder, tmp_path / "new.csv", "--json")
    _, whole, _ = run(capsys, folder, folder / "all.csv", "--json")
    found, whole = json.loads(out), json.loads(whole)
    assert found["predictions"] == whole["predictions"]
    assert (found["accuracy"], found["differ"]) == (None, whole["differ"])


def test_no_prediction_is_a_formula(capsys, tmp_path):
    """A label that a spreadsheet would carry out."""
    labels = np.where(WORDS == "benign", "=cmd()", WORDS)
    np.savez(tmp_path / "set.npz", X=CANCER.data, y=labels)
    with (tmp_path / "model.npz").open("wb") as file:
        trained(str(tmp_path / "set.npz")).save(file)
    status, _, _ = run(capsys, tmp_path, tmp_path / "set.npz", "-o", tmp_path / "found.csv")
    rows = list(csv.DictReader((tmp_path / "found.csv").read_text().splitlines()))
    for column in "prediction", "float64_prediction":
        assert {row[column] for row in rows} == {"'=cmd()", "malignant"}
    assert status == 0


def test_other_formats_serve_too(capsys, folder, tmp_path):
    np.savez(tmp_path / "set.npz", X=CANCER.data)
    dump_svmlight_file(CANCER.data, CANCER.target, str(tmp_path / "set.svm"), zero_based=False)
    _, whole, _ = run(capsys, folder, folder / "all.csv", "--json")
    for source in (tmp_path / "set.npz", tmp_path / "set.svm", "breast_cancer"):
        _, out, _ = run(capsys, folder / "model.npz", source, "--json")
        assert json.loads(out)["predictions"] == json.loads(whole)["predictions"]
        assert json.loads(out)["accuracy"] is None  # 0 and 1 are not its classes


def test_a_regression_tells_its_errors(capsys, tmp_path):
    model = trained("breast_cancer", Loss.LINEAR)
    with (tmp_path / "model.npz").open("wb") as file:
        model.save(file)
    _, out, _ = run(capsys, tmp_path, "breast_cancer", "--json")
    found = json.loads(out)
    ours, float64 = (CANCER.target.mean() + sums for sums in model.activations(CANCER.data))
    assert found["predictions"] == ours.tolist()
    assert found["rms_error"] == pytest.approx(np.sqrt(np.mean((ours - CANCER.target) ** 2)))
    assert found["r2"] == pytest.approx(r2_score(CANCER.target, ours))
    assert found["float64_r2"] == pytest.approx(r2_score(CANCER.target, float64))
    assert found["largest_difference"] == np.max(np.abs(ours - float64)) > 0
    _, out, _ = run(capsys, tmp_path, "breast_cancer")
    assert f"R²         {found['r2']:.4f}; " in out
    assert "RMS error" in out


def test_a_csv_file_without_labels_is_not_read_one_column_short(capsys, tmp_path):
    """The model has no names, so the last column counts as the labels."""
    with (tmp_path / "model.npz").open("wb") as file:
        trained("breast_cancer").save(file)
    write_csv(tmp_path / "new.csv", CANCER.feature_names, CANCER.data.T)
    status, out, err = run(capsys, tmp_path, tmp_path / "new.csv")
    assert (status, out) == (2, "")
    assert "29 features, but the model has 30" in err


@pytest.mark.parametrize(
    ("model", "source", "cause"),
    [
        ("none.npz", "digits", "none.npz: No such file or directory"),
        ("model.npz", "none.csv", "none.csv: no such file"),
        ("model.npz", "digits", "digits: 64 features, but the model has 30"),
        ("all.csv", "digits", "all.csv: no model of fanin train"),
        ("model.npz", "few.csv", "no column 'mean radius'; there are a, b"),
    ],
)
def test_bad_input_takes_a_line(capsys, folder, model, source, cause):
    (folder / "few.csv").write_text("a,b\n1,2\n")
    path = folder / source if source.endswith(".csv") else source
    status, out, err = run(capsys, folder / model, path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert cause in err


def test_a_later_libsvm_file_without_feature_0_is_read_as_the_training_was(capsys, tmp_path):
    """scikit-learn's loader alone would shift its features by one."""
    for name, columns in ("train", CANCER.data), ("later", np.where(np.arange(30) == 0, 0, CANCER.data)):
        dump_svmlight_file(columns, CANCER.target, str(tmp_path / name), zero_based=True)
    dense = tmp_path / "later.npz"
    np.savez(dense, features=np.where(np.arange(30) == 0, 0, CANCER.data), labels=CANCER.target)
    with (tmp_path / "model.npz").open("wb") as file:
        trained(str(tmp_path / "train")).save(file)
    answers = [
        json.loads(run(capsys, tmp_path, tmp_path / name, "--json")[1]) for name in ("later", "later.npz")
    ]
    assert answers[0]["predictions"] == answers[1]["predictions"]
    assert answers[0]["accuracy"] == answers[1]["accuracy"] > 0.6
