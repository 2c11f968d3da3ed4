"""``fanin train`` with checkpoints: killed, torn, resumed and restarted, it ends with a whole run's bits."""

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.glm.run.restarts import Attempts
from fanin.glm.run.state import load
from fanin.runs.output import class_folders
from fanin.runs.states import load_state, save_state
from fanin.runs.unfinished import UNFINISHED
from fanin.sim.glm.course import add_counts
from tests.fanin.cli.command import unlisted
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.train_nodes import GoldenNodes
from tests.support import new_seed, slow

EPOCHS = 6
NODES = ("train", "breast_cancer", "--preset", "tiny", "--workers", "2", "--epochs", str(EPOCHS))
STATES = [f"states/epoch{epoch:06}-00000000.npz" for epoch in range(EPOCHS + 1)]
KILLS = range(10)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def golden(monkeypatch):
    """The nodes that are made, the last one first."""
    made = []

    def make(*arguments, **options):
        made.insert(0, GoldenNodes(*arguments, **options))
        return made[0]

    monkeypatch.setattr("fanin.sim.glm.train.Cosim", make)
    return made


def run(*arguments):
    return main(list(map(str, arguments)))


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("fanin: error: ")


def record_of(folder):
    return json.loads((folder / "run.json").read_text())


def without_estimates(counters):
    """Counters without the values that begin anew with each job."""
    return {name: count for name, count in counters.items() if not name.startswith("round_trip")}


def same(folder, whole, *, but=("jobs", "restarts")):
    """All results are those of another run; jobs and the nodes' estimates of a round trip are not."""
    but = (*but, "job", "counters")
    left, right = (
        {key: value for key, value in record_of(f).items() if key not in but} for f in (folder, whole)
    )
    counts = [[without_estimates(node) for node in record_of(f).get("counters", [])] for f in (folder, whole)]
    return (
        left == right
        and counts[0] == counts[1]
        and (folder / "model.npz").read_bytes() == (whole / "model.npz").read_bytes()
    )


@pytest.fixture
def whole(golden, tmp_path):
    assert run(*NODES, "--checkpoint", 1, "-o", tmp_path / "whole") == 0
    return tmp_path / "whole"


@pytest.fixture
def stopped(whole, tmp_path):
    """The folder of that run, as a kill after its fourth epoch leaves it."""
    folder = shutil.copytree(whole, tmp_path / "stopped")
    (folder / "run.json").write_text(json.dumps(record_of(folder) | {"error": UNFINISHED}))
    for name in ("model.npz", "report.html", *STATES[5:]):
        (folder / name).unlink()
    return folder


def test_states_are_those_of_each_checkpoint_and_the_end(golden, whole, tmp_path):
    assert record_of(whole)["checkpoints"] == STATES[1:]
    assert run(*NODES, "--checkpoint", 4, "-o", tmp_path / "four") == 0
    assert record_of(tmp_path / "four")["checkpoints"] == [STATES[4], STATES[6]]
    assert same(tmp_path / "four", whole, but=("checkpoints",))
    assert run(*NODES, "-o", tmp_path / "none") == 0
    assert same(tmp_path / "none", whole, but=("checkpoints", "restarts"))
    assert not (tmp_path / "none" / "states").exists()
    assert np.array_equal(load(whole / STATES[6]).history.model, np.load(whole / "model.npz")["weights"])


def test_another_run_replaces_the_files_of_one_and_no_other(golden, whole, stopped):
    own = {"states/epoch_best.npz", "classes/0/notes.txt", "classes/notes/run.json"}
    for folder in (whole, stopped):
        assert not unlisted(folder)
        for name in own:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("the user's")
    assert run("train", "--resume", stopped) == 0
    assert same(stopped, whole)
    assert unlisted(stopped) == own
    assert own.isdisjoint(json.loads((stopped / "provenance.json").read_text())["results"])
    for folder in (whole, stopped):
        assert run(*NODES, "-o", folder) == 0
        assert unlisted(folder) == own
        assert {path.name for path in (folder / "states").iterdir()} == {"epoch_best.npz"}
        assert class_folders(folder) == []


def test_a_run_is_resumed_as_a_new_job_with_its_own_options(golden, whole, stopped, capsys):
    capsys.readouterr()
    assert run("train", "--resume", stopped, "--json") == 0
    assert documented("train", capsys.readouterr().out) == record_of(stopped)
    assert same(stopped, whole)
    (course,) = golden[0].courses
    assert (course.first, course.job, course.checkpoint) == (4, 2, 1)
    assert (stopped / "report.html").exists()
    provenance = json.loads((stopped / "provenance.json").read_text())
    assert [each["argv"] for each in provenance["resumed"]] == [["train", "--resume", str(stopped), "--json"]]


def test_a_run_may_be_resumed_until_it_has_come_to_its_end(golden, whole, capsys):
    before = (whole / "run.json").read_bytes()
    capsys.readouterr()
    assert run("train", "--resume", whole) == 0
    assert capsys.readouterr().out == f"{whole}: the run has finished already\n"
    assert (whole / "run.json").read_bytes() == before
    assert len(golden) == 1


def test_a_run_is_continued_elsewhere_with_more_epochs(golden, whole, tmp_path):
    assert run("train", "--resume", whole, "--epochs", 8, "-o", tmp_path / "more") == 0
    assert run(*NODES, "--epochs", 8, "--checkpoint", 1, "-o", tmp_path / "at once") == 0
    assert same(tmp_path / "more", tmp_path / "at once")
    assert record_of(whole)["checkpoints"] == STATES[1:]


def test_only_the_files_of_the_end_are_missing(golden, whole, stopped):
    for name in STATES[5:]:
        shutil.copy(whole / name, stopped / name)
    assert run("train", "--resume", stopped) == 0
    assert golden[0].courses == []
    assert same(stopped, whole)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--lr 3", "--lr 3: FOLDER was trained with 1"),
        ("--loss hinge", "--loss hinge: FOLDER was trained with logistic"),
        ("--workers 3", "--workers 3: FOLDER was trained with 2"),
        ("--no-bias", "--no-bias: FOLDER was trained with --bias"),
        ("--mode data-parallel", "--mode data-parallel: FOLDER was trained with model-parallel"),
        ("--seed 3", "--seed 3: FOLDER was trained with 0"),
        ("--preset demo", "--preset demo: FOLDER was trained with tiny"),
        ("--epochs 2", "epochs must be at least the 4 that FOLDER has, not 2"),
        ("OTHER", "DATA OTHER: FOLDER was trained with breast_cancer"),
    ],
)
def test_what_contradicts_the_run_is_refused_by_name(golden, stopped, tmp_path, capsys, arguments, cause):
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "other.npz", X=rng.random((40, 30)), y=np.arange(40) % 2)
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    words = [word.replace("OTHER", str(tmp_path / "other.npz")) for word in arguments.split()]
    said = refusal(capsys, "train", *words, "--resume", stopped)
    assert said == cause.replace("FOLDER", str(stopped)).replace("OTHER", str(tmp_path / "other.npz"))
    assert before == {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}


def test_what_cannot_be_resumed_is_refused(golden, whole, tmp_path, capsys):
    assert (
        refusal(capsys, "train", "--resume", tmp_path)
        == f"{tmp_path}: not a run of fanin train, cannot be resumed"
    )
    shutil.rmtree(whole / "states")
    said = f"{whole}: has no state to resume from: run without --checkpoint, or stopped before the first"
    assert refusal(capsys, "train", "--resume", whole) == said
    assert refusal(capsys, "train").startswith("the following arguments are required: DATA, or --resume")
    assert refusal(capsys, *NODES, "--checkpoint", 0) == "checkpoint must be at least 1, not 0"
    assert refusal(capsys, *NODES, "--restart", 0) == "restart must be at least 1, not 0"
    assert refusal(capsys, *NODES, "--checkpoint", 1, "--mpi") == "--mpi: does not go with --checkpoint"
    assert refusal(capsys, *NODES, "--stop", "2:1") == "--stop 2:1: workers are 0 to 1"


def test_a_state_of_fanin_cluster_is_none(golden, whole, stopped, capsys):
    for name in STATES[1:5]:
        with np.load(stopped / name) as archive:
            arrays = dict(archive)
        arrays["sha256"] = np.array("0")
        np.savez(stopped / name, **arrays)
    newest = stopped / STATES[4]
    said = refusal(capsys, "train", "--resume", stopped)
    assert said.startswith(f"{stopped}: no state is whole: {newest}: is damaged")


def test_a_torn_state_is_left_out(golden, whole, stopped, capsys):
    rng, path = random.Random(new_seed()), stopped / STATES[4]
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])
    capsys.readouterr()
    assert run("train", "--resume", stopped) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"fanin: warning: {path}: no NumPy archive, or one that was cut off; resumes from {stopped / STATES[3]}"
    )
    assert same(stopped, whole)


def test_other_data_of_the_same_name_is_refused(golden, tmp_path, capsys):
    rng, path = np.random.default_rng(1), tmp_path / "data.npz"
    np.savez(path, X=rng.random((40, 30)), y=np.arange(40) % 2)
    folder = tmp_path / "run"
    options = ("--preset", "tiny", "--workers", 2, "--epochs", 2, "--checkpoint", 1)
    assert run("train", path, *options, "-o", folder) == 0
    np.savez(path, X=rng.random((40, 30)), y=np.arange(40) % 2)
    said = refusal(capsys, "train", "--resume", folder, "--epochs", 3)
    assert said == f"{path}: has other samples than {folder} was trained with"


def test_a_failed_run_restarts_as_a_new_job_from_its_last_state(golden, whole, tmp_path, capsys):
    folder = tmp_path / "run"
    stops = ("--stop", "1:25e-6", "--stop", "0:45e-6")
    assert run(*NODES, "--checkpoint", 2, "--restart", 2, *stops, "-o", folder) == 0
    assert [(each.first, each.job) for each in golden[0].courses] == [(0, 1), (2, 2), (2, 3)]
    restarts = record_of(folder)["restarts"]
    assert [(each["epoch"], each["job"]) for each in restarts] == [(2, 2), (2, 3)]
    assert same(folder, whole, but=("jobs", "restarts", "checkpoints", "options"))
    warnings = capsys.readouterr().err.splitlines()[-2:]
    assert warnings[1].endswith("TIMEOUT; restarts after epoch 2 as job 3")


@pytest.mark.parametrize("stop", ["1:25e-6", "1:0"])
def test_without_states_it_restarts_from_the_start(golden, whole, tmp_path, capsys, stop):
    folder = tmp_path / "run"
    assert run(*NODES, "--restart", 1, "--stop", stop, "-o", folder) == 0
    assert "; restarts from the start as job 2" in capsys.readouterr().err
    assert same(folder, whole, but=("jobs", "restarts", "checkpoints", "options"))


def test_a_run_that_has_no_restart_left_fails_and_is_resumed(golden, whole, tmp_path, capsys):
    folder = tmp_path / "run"
    stops = ("--stop", "1:25e-6", "--stop", "0:45e-6")
    assert run(*NODES, "--checkpoint", 1, "--restart", 1, *stops, "-o", folder) == 1
    assert "TIMEOUT" in record_of(folder)["error"]
    capsys.readouterr()
    assert run("doctor", folder) == 1
    assert f"fanin train --resume {folder} continues after epoch" in capsys.readouterr().out
    assert run("train", "--resume", folder, "--stop", "1:1") == 0
    assert same(folder, whole, but=("jobs", "restarts", "options"))


def test_more_than_two_classes_go_on_where_they_were(golden, tmp_path):
    features, labels = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", X=features, y=labels)
    options = ("--preset", "tiny", "--workers", 2, "--epochs", 2, "--checkpoint", 1)
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert run("train", tmp_path / "iris.npz", *options, "-o", whole) == 0
    assert run("train", tmp_path / "iris.npz", *options, "-o", folder) == 0
    shutil.rmtree(folder / "classes" / "2")
    (folder / "classes" / "1" / STATES[2]).unlink()
    (folder / "model.npz").unlink()
    (folder / "run.json").write_text(json.dumps(record_of(folder) | {"error": UNFINISHED}))
    assert run("train", "--resume", folder) == 0
    assert [(each.first, each.job) for each in golden[0].courses] == [(1, 2), (0, 2)]
    assert same(folder, whole)
    assert not unlisted(folder)
    for place in range(3):
        assert (
            record_of(folder / "classes" / str(place))["epochs"]
            == record_of(whole / "classes" / str(place))["epochs"]
        )


def kill_after(monkeypatch, events):
    """The process is killed on the spot when it has called and left so many functions while it trained."""
    left = [events]

    def count(*_):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, *arguments, own=Attempts.train):
        sys.setprofile(count)
        try:
            return own(self, *arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(Attempts, "train", train)
    return left


def in_a_process(*arguments):
    """The exit status of the command in a process of its own."""
    process = FORK.Process(target=lambda: sys.exit(run(*arguments)))
    process.start()
    process.join()
    return process.exitcode


def killed_and_resumed(folder, rng, events, monkeypatch):
    """Train, killed at a random event, and resume, killed again; then to the end."""
    begin = (*NODES, "--checkpoint", 1, "-o", folder)
    command, statuses = begin, []
    for _ in range(2):
        with monkeypatch.context() as patch:
            kill_after(patch, rng.randrange(1, events))
            statuses.append(in_a_process(*command))
        if any(folder.glob("states/epoch*")):
            command = ("train", "--resume", folder)
    assert set(statuses) <= {-signal.SIGKILL, 0}
    assert run(*command) == 0
    assert not list(folder.rglob(".fanin*"))


@pytest.mark.parametrize("number", KILLS)
def test_killed_at_random_it_ends_with_the_same_bits(golden, whole, tmp_path, monkeypatch, number):
    with monkeypatch.context() as patch:
        left = kill_after(patch, -1)
        assert run(*NODES, "--checkpoint", 1, "-o", tmp_path / "events") == 0
    folder = tmp_path / "run"
    killed_and_resumed(folder, random.Random(new_seed() + number), -1 - left[0], monkeypatch)
    assert same(folder, whole)


@pytest.mark.verilator
@pytest.mark.parametrize("number", slow(*KILLS))
def test_rtl_killed_at_random_ends_with_the_same_bits(tmp_path, monkeypatch, number):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    with monkeypatch.context() as patch:
        left = kill_after(patch, -1)
        assert run(*NODES, "--checkpoint", 1, "-o", whole) == 0
    killed_and_resumed(folder, random.Random(new_seed() + number), -1 - left[0], monkeypatch)
    assert same(folder, whole)


@pytest.mark.verilator
def test_rtl_restarts_after_a_worker_has_stopped(tmp_path):
    options = ("train", "breast_cancer", "--preset", "tiny", "--workers", "2", "--epochs", "2")
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert run(*options, "-o", whole) == 0
    faults = ("--checkpoint", 1, "--restart", 1, "--stop", "1:25e-6", "--retries", 3)
    assert run(*options, *faults, "-o", folder) == 0
    assert [(each["epoch"], each["job"]) for each in record_of(folder)["restarts"]] == [(1, 2)]
    assert (folder / "model.npz").read_bytes() == (whole / "model.npz").read_bytes()
    assert record_of(folder)["epochs"] == record_of(whole)["epochs"]


def test_links_among_states_are_neither_read_nor_written(golden, stopped, tmp_path, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "epoch000009-00000000.npz").write_text("precious")
    (stopped / "states" / "epoch000009-00000000.npz").symlink_to(mine / "epoch000009-00000000.npz")
    assert run("train", "--resume", stopped, "-o", tmp_path / "rest") == 0
    assert not any(path.is_symlink() for path in (tmp_path / "rest").rglob("*"))
    assert not (tmp_path / "rest/states/epoch000009-00000000.npz").exists()
    shutil.move(stopped / "states", tmp_path / "moved")
    (stopped / "states").symlink_to(mine)
    capsys.readouterr()
    assert refusal(capsys, "train", "--resume", stopped).startswith(f"{stopped}: has no state")
    with pytest.raises(InputError, match="states: is a link; states are not written through links"):
        save_state(stopped / STATES[1], {}, {})
    assert [path.read_text() for path in mine.iterdir()] == ["precious"]


def test_links_in_the_folder_of_a_run_of_classes_are_replaced(golden, tmp_path):
    features, labels = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", X=features, y=labels)
    options = ("--preset", "tiny", "--workers", 2, "--epochs", 1, "--checkpoint", 1)
    folder, mine = tmp_path / "run", tmp_path / "mine"
    command = ("train", tmp_path / "iris.npz", *options, "-o", folder)
    assert run(*command) == 0
    mine.mkdir()
    shutil.rmtree(folder / "classes")
    (folder / "classes").symlink_to(mine)
    assert run(*command) == 0
    assert list(mine.iterdir()) == []
    assert len(class_folders(folder)) == 3


@pytest.mark.parametrize(
    ("about", "cause"),
    [
        ("[" * 100_000, "no checkpoint of fanin train: "),
        ("[1]", "no checkpoint of fanin train"),
        ('{"format": 2, "command": "fanin train"}', "no state of fanin train: KeyError: "),
    ],
    ids=["deep", "list", "empty"],
)
def test_a_state_of_a_strangers_making_takes_one_line(tmp_path, about, cause):
    (tmp_path / "states").mkdir()
    path = tmp_path / STATES[1]
    np.savez(path, about=np.array(about), sha256=np.array(hashlib.sha256(about.encode()).hexdigest()))
    with pytest.raises(InputError, match=cause):
        load(path)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"job": "x"}, "TypeError: job has another type"),
        ({"job": 256}, r"ValueError: job must be in 0…255, not 256"),
        ({"epoch": True}, "TypeError: epoch has another type"),
        ({"configuration": {}}, "TypeError: configuration.data is missing or has another type"),
        (
            {"configuration": {"data": "x", "epochs": "2"}},
            "configuration.epochs is missing or has another type",
        ),
        ({"training": {}}, "TypeError: training.lr is missing or has another type"),
        ({"counters": 5}, "TypeError: counters has another type"),
        ({"switch": 5}, "TypeError: switch has another type"),
        ({"links": [{"up": {"frames": "1"}}]}, "TypeError: links has another type"),
        ({"scores": []}, "ValueError: scores must be one of each epoch, 1, not 0"),
        ({"model": np.array(["x"])}, "TypeError: model must be a vector of int32"),
    ],
)
def test_fields_of_other_types_take_one_line_also_with_a_right_digest(tmp_path, fields, cause):
    about = {
        "command": "fanin train", "configuration": {"data": "x", "epochs": 1}, "training": {"lr": 1.0},
        "data": "0", "job": 1, "epoch": 1, "scores": [[0.5, 0.5, 9]], "counters": [{"clamps": 0}],
        "jobs": {"1": {"results": 1}}, "first_packet": [{}], "cycles": 9, "frames": {"AGG": 1},
        "links": [{"up": {"frames": 1}}], "switch": {"foreign": 0},
    }  # fmt: skip
    arrays = {"model": np.zeros(3, np.int32), "allreduce_ns": np.zeros(3)}
    (tmp_path / "states").mkdir()
    path = tmp_path / STATES[1]
    save_state(path, about, arrays)
    assert load(path).history.epoch == 1
    changed = about | {name: value for name, value in fields.items() if name not in arrays}
    save_state(path, changed, arrays | {name: value for name, value in fields.items() if name in arrays})
    with pytest.raises(InputError, match=cause) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("job", ["x", [], 256])
def test_a_job_of_another_type_in_run_json_takes_one_line(capsys, stopped, job):
    (stopped / "run.json").write_text(json.dumps(record_of(stopped) | {"job": job}))
    assert '"job" must be an integer in 0…255, not ' in refusal(capsys, "train", "--resume", stopped)


@pytest.mark.parametrize(
    ("name", "change", "cause"),
    [
        ("model", lambda model: model[:-1], ": its state has 30 weights, not 31"),
        ("model", lambda model: np.append(model, model), ": its state has 62 weights, not 31"),
        ("counters", lambda counters: [{}], ": its state has counters of 1 nodes, not 2"),
    ],
)
def test_a_state_of_other_sizes_takes_one_line(capsys, stopped, name, change, cause):
    for path in (stopped / "states").iterdir():
        about, arrays = load_state(path, "fanin train")
        group = arrays if name in arrays else about
        group[name] = change(group[name])
        save_state(path, about | {"command": "fanin train"}, arrays)
    assert refusal(capsys, "train", "--resume", stopped) == f"{stopped}{cause}"


def test_counts_of_other_lengths_are_added():
    assert add_counts([{"up": 1}, {"up": 5}], [{"up": 2}]) == [{"up": 3}, {"up": 5}]


def test_an_option_of_another_fanin_takes_one_line(capsys, stopped):
    path = max((stopped / "states").iterdir())
    about, arrays = load_state(path, "fanin train")
    about["training"]["unheard_of"] = 1
    save_state(path, about | {"command": "fanin train"}, arrays)
    assert refusal(capsys, "train", "--resume", stopped) == (
        f"{stopped}: its states have an unknown option: unheard_of"
    )
