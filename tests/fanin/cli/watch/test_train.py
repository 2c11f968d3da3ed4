"""Real runs of ``fanin train``, watched from before they begin until the reports are there."""

import json
import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_iris

from fanin.cli.main import main
from tests.fanin.cli.watch.served import SECONDS, ask, command, interrupt, progress, serving
from tests.fanin.runs.live import noted

NODES = ("train", "breast_cancer", "--preset", "tiny", "--workers", "2")

pytestmark = pytest.mark.verilator


def _watch(url, seen, over):
    while not over.is_set():
        found = progress(url)
        if [found["state"]] != seen[-1:]:
            seen.append(found["state"])
        time.sleep(0.05)


def test_a_training_is_seen_from_the_wait_to_its_report(tmp_path, monkeypatch):
    told = noted(monkeypatch)
    folder, seen, over = tmp_path / "run", [], threading.Event()
    with command(folder) as (process, url, _):
        thread = threading.Thread(target=_watch, args=(url, seen, over))
        thread.start()
        try:
            while not seen:
                time.sleep(0.01)
            assert main([*NODES, "--epochs", "2", "-o", str(folder)]) == 0
            end = time.monotonic() + SECONDS
            while seen[-1] != "ended" and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            over.set()
            thread.join()
        assert seen == ["waiting", "running", "ended"]
        assert ask(url, "/report")[2] == (folder / "report.html").read_bytes()
        assert interrupt(process) == (0, "")
    found = json.loads((folder / "run.json").read_text())
    last = told[-1]
    assert last["stage"] == "comparing with the golden model"
    losses = [loss for _, loss in last["losses"]["golden model"]]
    assert losses == found["golden_loss"][: len(losses)]
    assert last["total"] == 216
    assert not list(folder.glob(".fanin-*"))


@pytest.mark.slow
def test_several_classes_are_told_one_after_the_other(tmp_path, monkeypatch):
    told = noted(monkeypatch)
    flowers, path, folder = load_iris(), tmp_path / "iris.npz", tmp_path / "run"
    np.savez(path, X=flowers.data, y=flowers.target_names[flowers.target])
    assert main(["train", str(path), *NODES[2:], "--epochs", "2", "-o", str(folder)]) == 0
    stages = list(dict.fromkeys(one["stage"] for one in told))
    names = ("class setosa, 1 of 3", "class versicolor, 2 of 3", "class virginica, 3 of 3")
    doing = ("training", "comparing with the golden model")
    assert stages[1:] == [f"{name}: {what}" for name in names for what in doing]
    assert [one["done"] for one in told] == sorted(one["done"] for one in told)
    assert list(told[-1]["losses"]) == ["class setosa", "class versicolor", "class virginica"]
    with serving(folder) as url:
        assert progress(url)["reports"] == [f"/report/{n}" for n in range(3)]
        assert b"versicolor against the rest" in ask(url, "/report/1")[2]
