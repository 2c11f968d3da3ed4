"""``fanin ps train --beside``: runs of their own, and what is left when one of them fails."""

import json
from pathlib import Path

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.cli.main import main
from fanin.param_server.facts import Algorithm
from fanin.param_server.run.beside import runs_beside
from fanin.param_server.run.options import ParamServerOptions
from fanin.runs.option import options_of
from fanin.sim.param_server import events
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.ps import EACH, FILES, SMALL, json_of_ps, run_ps

STRAGGLERS = "stragglers=0:3,stragglers=1:4,slots=2"
BESIDE = "--beside slots=2 --beside algorithm=sync --beside slots=3"


#: Options that leave data, model and links as they are, so that a run beside the first can be compared with it.
CHANGEABLE = (
    "algorithm, push-after, receivers, workers, slots, warm-up, servers, batch, lr, dtype, costs, "
    "sample-seconds, jitter, stragglers"
)


def test_what_a_run_beside_may_change_is_what_the_page_says():
    page = (Path(__file__).parents[3] / "docs/systems/param-server-training.md").read_text()
    listed = " ".join(page.split("A run beside may change ")[1].split(", of which")[0].split())
    assert listed.replace(" and", ",") == CHANGEABLE
    names = {each.name.replace("_", "-") for each in options_of(ParamServerOptions) if each.changeable}
    assert names == set(CHANGEABLE.split(", "))


def test_a_value_beside_is_read_as_on_a_command_line(capsys):
    entries = ("sample-seconds=1e-6,slots=2", "rate=3,stragglers=1:2,stragglers=5%:4", "costs=cluster")
    first = ParamServerOptions.read({"stragglers": "0:9", "epochs": 3, "beside": entries})
    quick, renamed, cluster = runs_beside(first)
    assert (quick.sample_seconds, quick.slots, quick.stragglers, quick.epochs) == (1e-6, 2, ("0:9",), 3)
    assert (renamed.lr, renamed.stragglers) == (3.0, ("1:2", "5%:4"))
    assert cluster.given == {"stragglers", "epochs", "beside", "costs"}
    assert capsys.readouterr().err == f"fanin: note: --beside {entries[1]}: rate is lr now\n"


def test_a_run_beside_that_cannot_be_is_refused_before_the_first_begins(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "run", lambda *_: pytest.fail("it began"))
    assert main(["ps", "train", *f"{SMALL} --beside batch=1000 -o {tmp_path / 'run'}".split()]) == 2
    assert capsys.readouterr().err.startswith("fanin: error: batch must be 1 to ")
    assert not list(tmp_path.iterdir())


def test_sync_dsgd_beside_has_none_of_wilds_pushes(capsys, tmp_path):
    options = f"{SMALL} --push-after scan --receivers broadcast --beside algorithm=sync"
    found = json_of_ps(capsys, tmp_path / "run", options)
    names = "algorithm", "push_after", "receivers"
    runs = [[run["configuration"][name] for name in names] for run in (found, *found["beside"])]
    assert runs == [["wild", "scan", "broadcast"], ["sync", None, "barter"]]


def test_runs_beside_the_first_are_trainings_of_their_own(capsys, tmp_path):
    beside = "--beside algorithm=sync --beside receivers=broadcast,push-after=scan"
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} {beside}")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    sync, broadcast = found["beside"]
    assert sync["configuration"]["algorithm"] == "sync"
    assert sync["configuration"]["push_after"] is None
    alone = json_of_ps(capsys, tmp_path / "alone", f"{SMALL} --algorithm sync")
    assert {**sync, "beside": []} == alone
    options = broadcast["configuration"]
    assert (options["algorithm"], options["push_after"], options["receivers"]) == ("wild", "scan", "broadcast")
    assert found["configuration"] == options | {
        "push_after": "gradient",
        "receivers": "barter",
    }
    for run in (found, *found["beside"]):
        assert sum(run["server_seconds"].values()) == pytest.approx(run["simulated_seconds"])
        assert 0 <= run["waiting_beside_work"] <= 1
    assert "Runs beside one another" in (tmp_path / "run" / "report.html").read_text()
    assert main(["ps", "train", *f"{SMALL} {beside}".split(), "-o", str(tmp_path / "run")]) == 0
    assert "algorithm wild, push-after scan, receivers broadcast" in capsys.readouterr().out


def test_a_run_beside_has_all_of_its_own_stragglers_and_none_of_the_first_ones(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 1 --stragglers 2:5 --beside {STRAGGLERS}")
    assert [run["configuration"]["stragglers"] for run in (found, *found["beside"])] == ["2:5", "0:3,1:4"]


def _fails_with_sync(failure):
    """What is run in the place of the event model: it ends the run of Sync-DSGD before its end."""

    def run(job, learner, progress, whole=events.run):
        if job.algorithm is Algorithm.SYNC:
            progress(5, 0.25, ())
            raise failure
        return whole(job, learner, progress)

    return run


@pytest.mark.parametrize(
    ("failure", "status", "error"),
    [
        (CheckFailed("worker 1 stopped answering"), 1, "--beside algorithm=sync: worker 1 stopped answering"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["failed", "interrupted"],
)
def test_a_run_beside_that_fails_is_named_and_the_ones_before_are_kept(
    capsys, tmp_path, monkeypatch, failure, status, error
):
    alone = json_of_ps(capsys, tmp_path / "alone")
    monkeypatch.setattr(events, "run", _fails_with_sync(failure))
    folder = tmp_path / "run"
    found_status, out, err = run_ps(capsys, folder, f"{SMALL} {BESIDE} --json")
    cause = f"--beside algorithm=sync: {str(failure) or error}"
    assert (found_status, err) == (status, f"fanin: error: {cause} (fanin doctor {folder} says more)\n")
    found = documented("ps train", out)
    assert found | {"beside": [], "error": None} == alone
    assert found["error"] == error
    slots, sync = found["beside"]
    assert (slots["error"], slots["configuration"]["slots"]) == (None, 2)
    assert (sync["error"], sync["gradients_applied"]) == (str(failure) or error, 5)
    assert (sync["simulated_seconds"], sync["gradients_each"]) == (0.25, 3 * EACH)
    assert sync["configuration"]["algorithm"] == "sync"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    for name in "model.npy", "trace.json":
        assert (folder / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    page = (folder / "report.html").read_text()
    assert error in page
    assert "Runs beside one another" in page


def test_a_run_beside_that_diverges_is_named(capsys, tmp_path):
    with np.errstate(all="ignore"):
        status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 1 --json --beside lr=1e9")
    said = "--beside lr=1e9: the model diverged: "
    assert (status, err.startswith(f"fanin: error: {said}")) == (1, True)
    found = json.loads(out)
    assert found["error"].startswith(said)
    assert found["beside"][0]["error"].startswith("the model diverged")
    assert found["accuracy"] > 0.5
