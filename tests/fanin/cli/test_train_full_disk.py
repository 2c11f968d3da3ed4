"""``fanin train --checkpoint`` on a disk that is full when the run ends: the resumed run has all its files."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris

from fanin.base import scratch
from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.runs.unfinished import UNFINISHED
from tests.fanin.cli.train_nodes import GoldenNodes

OPTIONS = ("--preset", "tiny", "--workers", "2", "--epochs", "2", "--checkpoint", "1")


@pytest.fixture
def full_at(monkeypatch):
    """Set the file that has no room; run.json of a finished run, not of an unfinished one."""
    monkeypatch.setattr("fanin.sim.glm.train.Cosim", GoldenNodes)
    full = [None]

    def write(path, content, own=scratch.write_file):
        if path.name == full[0] and (path.name != "run.json" or json.loads(content).get("error") is None):
            raise InputError(f"{path}: cannot be written: No space left on device")
        own(path, content)

    monkeypatch.setattr("fanin.glm.run.files.write_file", write)
    return full


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["aggregation.p4", "report.html", "model.npz", "run.json"])
def test_a_run_that_found_no_room_at_its_end_is_resumed(tmp_path, capsys, full_at, classes, name):
    data, whole, folder = "breast_cancer", tmp_path / "whole", tmp_path / "run"
    if classes == 3:
        features, labels = load_iris(return_X_y=True)
        data = str(tmp_path / "iris.npz")
        np.savez(data, X=features, y=labels)
    assert main(["train", data, *OPTIONS, "-o", str(whole)]) == 0
    full_at[0] = name
    assert main(["train", data, *OPTIONS, "-o", str(folder)]) == 2
    assert json.loads((folder / "run.json").read_text())["error"] == UNFINISHED
    full_at[0] = None
    assert main(["train", "--resume", str(folder)]) == 0
    assert (folder / "model.npz").read_bytes() == (whole / "model.npz").read_bytes()
    names = [{str(path.relative_to(run)) for path in run.rglob("*")} for run in (whole, folder)]
    assert names[0] == names[1]
    capsys.readouterr()
