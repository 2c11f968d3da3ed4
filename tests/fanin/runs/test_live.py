"""The live file: what it holds while a run goes on, and that nothing is left of it."""

import json
import os
import socket
from itertools import pairwise

import pytest

from fanin.base.scratch import LIVE_FILE
from fanin.cli.main import main
from fanin.runs import live
from fanin.runs.live import LiveFile, Series
from tests.fanin.runs.live import noted

RING = "ring train --on model --layers 64,16,10 --nodes 2 --epochs 3 --batch 128"
PS = "ps train --on model --workers 2 --epochs 2 --no-optimum"


def _live(folder):
    return LiveFile(folder, "train", title="a set", unit="steps")


def _read(folder):
    return json.loads((folder / LIVE_FILE).read_text())


def test_it_says_how_far_the_run_is_and_goes_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MIN_SECONDS_BETWEEN_WRITES", 0.0)
    folder = tmp_path / "new" / "run"
    with _live(folder) as run:
        assert not folder.exists()  # bad input has no folder
        run.stage("building")
        found = _read(folder)
        assert (found["command"], found["title"], found["unit"]) == ("train", "a set", "steps")
        assert (found["stage"], found["done"], found["total"], found["earlier"]) == ("building", 0, 0, None)
        assert (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
        run.expect(10)
        run.losses("golden model", 1, 0.5)
        assert run.advance(4, epoch="1/2") == ""  # it is too early to say what is left
        found = _read(folder)
        assert (found["done"], found["total"], found["seconds_left"]) == (4, 10, None)
        assert (found["now"], found["losses"]) == ({"epoch": "1/2"}, {"golden model": [[1, 0.5]]})
        assert [done for _, done in found["counts"]] == [4]
    assert not (tmp_path / "new").exists()


def test_it_tells_how_long_the_rest_takes(tmp_path, monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with _live(tmp_path) as run:
        run.stage("training")
        run.expect(30)
        run.advance(10)
        assert run.advance(20).endswith(" left")
        assert _read(tmp_path)["seconds_left"] > 0


def test_a_folder_that_was_there_stays_with_what_it_has(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with _live(tmp_path) as run:
        run.stage("building")
        assert _read(tmp_path)["earlier"] == (tmp_path / "run.json").stat().st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_it_is_written_once_a_second(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(live, "write_file", lambda *file: written.append(file))
    with _live(tmp_path) as run:
        run.stage("training")
        for done in range(1000):
            run.advance(done)
    assert len(written) == 1


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path):
    (tmp_path / "file").write_text("")
    with _live(tmp_path / "file" / "run") as run:
        run.stage("building")
        run.advance(3)


def test_a_long_series_becomes_coarser_and_stays_even(monkeypatch):
    monkeypatch.setattr(live, "MAX_SAMPLES", 8)
    series = Series()
    for step in range(100):
        series.add(step, 2 * step)
    times = [at for at, _ in series.points]
    assert 4 <= len(times) <= 8
    assert {after - before for before, after in pairwise(times)} == {16}
    assert all(value == 2 * at for at, value in series.points)


def test_runs_beside_count_on_and_have_a_line_of_losses_each(tmp_path, monkeypatch, capsys):
    told = noted(monkeypatch)
    beside = "--batch 64 --beside algorithm=sync --beside batch=32,slots=2"
    assert main([*f"{PS} {beside}".split(), "-o", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    runs = [found, *found["beside"]]
    counts = [done for _, done in told[-1]["counts"]]
    assert counts == sorted(counts)
    assert {one["total"] for one in told if one["total"]} == {sum(run["gradients_applied"] for run in runs)}
    assert counts[-1] == told[-1]["done"] == told[-1]["total"]
    names = [f"the servers' model{entry}" for entry in ("", ", algorithm=sync", ", batch=32,slots=2")]
    assert told[-1]["losses"] == {
        name: [[epoch["epoch"], epoch["loss"]] for epoch in run["epochs"]]
        for name, run in zip(names, runs, strict=True)
    }


@pytest.mark.parametrize(
    ("line", "series", "epochs"), [(RING, "golden model", 3), (PS, "the servers' model", 2)]
)
def test_a_run_tells_how_far_it_is(line, series, epochs, tmp_path, monkeypatch, capsys):
    told = noted(monkeypatch)
    assert main([*line.split(), "-o", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert told[0]["stage"] == "reading the samples"
    last = told[-1]
    assert (last["stage"], last["done"], last["title"]) == ("training", last["total"], "digits")
    assert last["now"]["epoch"] == f"{epochs}/{epochs}"
    assert [loss for _, loss in last["losses"][series]] == [one["loss"] for one in found["epochs"]]
    assert LIVE_FILE not in [path.name for path in (tmp_path / "run").iterdir()]
