"""Runs that go on: byte by byte the files of one that was never stopped; on another plan that one's bits."""

import importlib.util
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base import scratch
from fanin.base.errors import InputError, ToolFailed
from fanin.cli.main import main
from fanin.cnn.run import build as builds
from fanin.cnn.run import execute
from fanin.cnn.run.checkpoint import flatten_states, load_checkpoint
from fanin.cnn.run.folder import open_run
from fanin.cnn.run.machine import ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.setup import reload_images
from fanin.runs.lock import sole_writer
from fanin.runs.unfinished import UNFINISHED
from tests.fanin.cli.command import unlisted
from tests.fanin.cli.json_page import documented
from tests.fanin.cnn.run.runs import bits, refusal, run
from tests.support import new_seed, slow

OPTIONS = ("--epochs", "4", "--seed", "2", "--checkpoint", "2")
STATES = 13  # three of each epoch, and the first
KILLS = range(10)
FORK = multiprocessing.get_context("fork")


def resume(folder, *options):
    return main(["cluster", "resume", str(folder), *map(str, options)])


def files(folder):
    """All but provenance.json, which says how often the run went on."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path != folder / "provenance.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def record_of(folder):
    return json.loads((folder / "run.json").read_text())


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run(small, folder, *OPTIONS) == 0
    return folder


@pytest.fixture
def stopped(whole, tmp_path):
    """The folder of that run, as if it had been killed behind its seventh state: the second epoch's last."""
    folder = shutil.copytree(whole, tmp_path / "stopped")
    record = record_of(folder)
    assert len(record["checkpoints"]) == STATES
    behind = {
        "error": execute.UNFINISHED,
        "checkpoints": record["checkpoints"][:7],
        "epochs": record["epochs"][:1],
    }
    (folder / "run.json").write_text(json.dumps(record | behind))
    (folder / "report.html").unlink()
    for name in record["checkpoints"][7:]:
        (folder / name).unlink()
    return folder


def kill_after(monkeypatch, events):
    """The process is killed on the spot when it has called and left so many functions while it trained."""
    left = [events]

    def count(*_):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, own=execute.RunRecorder.train):
        sys.setprofile(count)
        try:
            return own(self)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(execute.RunRecorder, "train", train)
    return left


def in_a_process(call, *arguments):
    """The exit status of a call in a process of its own."""
    process = FORK.Process(target=lambda: sys.exit(call(*arguments)))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def events(small, tmp_path_factory):
    """How many a whole training has."""
    with pytest.MonkeyPatch.context() as patch:
        left = kill_after(patch, -1)
        assert run(small, tmp_path_factory.mktemp("events") / "run", *OPTIONS) == 0
    return -1 - left[0]


@pytest.mark.parametrize("number", [*KILLS[:3], *slow(*KILLS[3:])])
def test_killed_at_random_and_again_when_it_goes_on_it_ends_as_if_it_never_was(
    small, whole, events, tmp_path, monkeypatch, capsys, number
):
    rng, folder = random.Random(new_seed() + number), tmp_path / "run"
    first = rng.randrange(1, events)
    for at, command in (
        (first, lambda: run(small, folder, *OPTIONS)),
        (rng.randrange(1, events), lambda: resume(folder)),
    ):
        with monkeypatch.context() as patch:
            kill_after(patch, at)
            status = in_a_process(command)
        assert status in (-signal.SIGKILL, 0, 2)
        if at == first:
            assert status == -signal.SIGKILL
    states = record_of(folder)["checkpoints"]
    if not states:  # killed before there was one
        capsys.readouterr()
        assert refusal(capsys, "cluster", "resume", folder).startswith(f"{folder}: has no state")
        return
    assert resume(folder) == 0
    assert files(folder) == files(whole)


def tear(rng, path):
    """Cut a file off, or turn bits of one of its bytes over."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del content[rng.randrange(len(content)) :]
    else:
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    path.write_bytes(content)


@pytest.mark.parametrize("number", KILLS)
def test_a_torn_state_is_left_out(whole, stopped, capsys, number):
    """Some bytes of an archive say nothing of its arrays: one of them may change."""
    rng, states = random.Random(new_seed() + number), record_of(stopped)["checkpoints"]
    tear(rng, stopped / states[6])
    try:
        open_run(stopped).state(states[6])
    except InputError as error:
        said = f"fanin: warning: {error}; resuming from {stopped / states[5]}\n"
    else:
        said = ""
        assert bits(stopped, states[6]) == bits(whole, states[6])
        shutil.copy(whole / states[6], stopped / states[6])
    capsys.readouterr()
    assert resume(stopped) == 0
    assert capsys.readouterr().err == said
    assert files(stopped) == files(whole)


def test_a_run_goes_on_behind_the_newest_state_that_is_whole(whole, stopped, capsys):
    states = record_of(stopped)["checkpoints"]
    (stopped / states[6]).write_bytes(b"")
    (stopped / states[5]).unlink()
    assert resume(stopped) == 0
    cause = f"{stopped / states[6]}: no NumPy archive, or one that was cut off"
    assert capsys.readouterr().err == f"fanin: warning: {cause}; resuming from {stopped / states[4]}\n"
    assert files(stopped) == files(whole)


def test_a_state_of_another_run_is_left_out(small, whole, stopped, tmp_path, capsys):
    """It is of the same place, network and data; only the rate is another one."""
    assert run(small, tmp_path / "other", *OPTIONS, "--lr", "0.2") == 0
    name = record_of(stopped)["checkpoints"][6]
    shutil.copy(tmp_path / "other" / name, stopped / name)
    capsys.readouterr()
    assert resume(stopped) == 0
    assert capsys.readouterr().err.startswith(f"fanin: warning: {stopped / name}: is a state of another run; ")
    assert files(stopped) == files(whole)


def test_without_a_whole_state_nothing_goes_on(stopped, capsys):
    for name in record_of(stopped)["checkpoints"]:
        (stopped / name).write_text("")
    before = files(stopped)
    said = refusal(capsys, "cluster", "resume", stopped)
    newest = stopped / "states/epoch000002-00000000.npz"
    cause = "no NumPy archive, or one that was cut off"
    assert said == f"{stopped}: no state is whole: {newest}: {cause}"
    (stopped / "run.json").write_text(json.dumps(record_of(stopped) | {"checkpoints": []}))
    said = refusal(capsys, "cluster", "resume", stopped)
    assert said == f"{stopped}: has no state: the run stopped before its first one"
    assert {**files(stopped), "run.json": 0} == {**before, "run.json": 0}


def test_an_epoch_that_was_measured_is_not_measured_again(whole, stopped, monkeypatch):
    """Only in that case are the measures there: then the run was stopped, and not killed."""
    evaluated = []

    def evaluate(self, images, own=Golden.evaluate):
        evaluated.append(len(images))
        return own(self, images)

    monkeypatch.setattr(Golden, "evaluate", evaluate)
    again = shutil.copytree(stopped, stopped.with_name("again"))
    assert resume(stopped) == 0
    assert len(evaluated) == 3
    epochs = record_of(whole)["epochs"]
    (again / "run.json").write_text(json.dumps(record_of(again) | {"epochs": epochs[:2]}))
    evaluated.clear()
    assert resume(again) == 0
    assert len(evaluated) == 2
    assert files(again) == files(stopped) == files(whole)


@pytest.mark.parametrize("name", ["report.html", "run.json"])
def test_a_run_that_found_no_room_at_its_end_is_resumed(small, whole, tmp_path, monkeypatch, name):
    """run.json of a finished run is the last file: with it, nothing more is written."""

    def write(path, content, own=execute.write_file):
        if path.name == name and (name != "run.json" or json.loads(content)["error"] is None):
            raise InputError(f"{path}: cannot be written: No space left on device")
        own(path, content)

    with monkeypatch.context() as full:
        full.setattr(execute, "write_file", write)
        assert run(small, tmp_path / "run", *OPTIONS) == 2
    assert record_of(tmp_path / "run")["error"] == UNFINISHED
    assert resume(tmp_path / "run") == 0
    assert files(tmp_path / "run") == files(whole)


def test_a_run_that_has_come_to_its_end_says_so(whole, capsys):
    before = files(whole)
    assert resume(whole) == 0
    assert capsys.readouterr().out == f"{whole}: has come to its end\n"
    assert resume(whole, "--json") == 0
    assert json.loads(capsys.readouterr().out) == record_of(whole)
    assert resume(whole, "--plan", "none-such") == 2
    assert capsys.readouterr().err.startswith("fanin: error: --plan none-such: ")
    assert files(whole) == before


def test_a_run_whose_last_state_was_torn_behind_its_end_makes_it_again(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / record_of(whole)["checkpoints"][-1]).write_text("")
    assert resume(folder) == 0
    assert files(folder) == files(whole)


def test_what_a_run_goes_on_with_is_told(stopped, capsys):
    assert resume(stopped, "--json") == 0
    assert documented("cluster resume", capsys.readouterr().out) == record_of(stopped)


def test_data_that_have_changed_are_refused(small, stopped, tmp_path, capsys):
    with np.load(small.data) as archive:
        arrays = dict(archive)
    arrays["x_test"][3, 2, 1, 0] += 1
    np.savez(tmp_path / "data.npz", **arrays)
    record = record_of(stopped)
    record["data"]["name"] = str(tmp_path / "data.npz")
    (stopped / "run.json").write_text(json.dumps(record))
    said = refusal(capsys, "cluster", "resume", stopped)
    assert said == f"{tmp_path}/data.npz: is not what {stopped} was trained on"
    (tmp_path / "data.npz").unlink()
    assert refusal(capsys, "cluster", "resume", stopped).startswith(f"{tmp_path}/data.npz: ")


def test_measures_that_are_left_out_are_refused(stopped, capsys):
    (stopped / "run.json").write_text(json.dumps(record_of(stopped) | {"epochs": []}))
    said = refusal(capsys, "cluster", "resume", stopped)
    assert said == f"{stopped}/run.json: epochs: has 0 before states/epoch000002-00000000.npz"


def test_without_pytorch_a_run_goes_on_without_binary64(whole, stopped, monkeypatch, capsys):
    own = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else own(name))
    assert resume(stopped) == 0
    said = "fanin: warning: PyTorch is not installed: resuming without the network in binary64\n"
    assert capsys.readouterr().err == said
    found, right = record_of(stopped)["epochs"], record_of(whole)["epochs"]
    assert [set(epoch) - {"epoch", "lr"} for epoch in found] == [{"golden", "float64"}, *[{"golden"}] * 3]
    assert [epoch["golden"] for epoch in found] == [epoch["golden"] for epoch in right]


def test_a_run_whose_simulator_cannot_be_built_stays_as_it_was(small, stopped, monkeypatch, capsys):
    def machines_of(setup):
        raise ToolFailed("g++ is out of memory")

    monkeypatch.setattr(execute, "machines_of", machines_of)
    before = files(stopped)
    assert resume(stopped, "--plan", small.other) == 1
    assert capsys.readouterr().err == "fanin: error: g++ is out of memory\n"
    assert files(stopped) == before


class TestOtherPlan:
    def test_its_bits_are_those_of_that_plan_from_the_state_on(self, small, whole, stopped, capsys):
        assert resume(stopped, "--plan", small.other) == 0
        found, other = open_run(stopped), builds.read_network(small.other).network
        first, data = record_of(stopped)["checkpoints"][6], reload_images(found).train
        machine = Golden(other)
        machine.load(load_checkpoint(whole / first, other).states)
        for stretch in [*found.training.stretches(len(data))][6:]:
            chosen = found.training.order(stretch.epoch, len(data))[stretch.first : stretch.end]
            machine.train(data.images[chosen], data.digits[chosen], stretch.job, ignore_progress)
        last = {name: values.tobytes() for name, values in flatten_states(other, machine.dump()).items()}
        assert bits(stopped, found.states[-1]) == last
        assert bits(whole, found.states[-1]) != last
        assert [(used.folder, used.since) for used in found.builds] == [
            ("build", found.states[0]),
            ("builds/2", first),
        ]
        assert record_of(stopped)["build"]["devices"] == ["one", "two"]
        capsys.readouterr()
        assert main(["cluster", "check", str(stopped)]) == 0
        assert capsys.readouterr().out == f"{stopped}: 12 states, every bit is the golden model's\n"

    def test_a_build_of_it_is_the_same(self, small, stopped, tmp_path, monkeypatch):
        monkeypatch.setattr("fanin.cnn.run.rtl.Rtl", lambda *_: None)
        assert main(["cluster", "build", str(small.other), "-o", str(tmp_path / "build")]) == 0
        again = shutil.copytree(stopped, tmp_path / "again")
        assert resume(stopped, "--plan", small.other) == 0
        assert resume(again, "--plan", tmp_path / "build") == 0
        assert files(again) == files(stopped)

    def test_its_own_plan_is_no_other(self, small, whole, stopped):
        assert resume(stopped, "--plan", small.plan) == 0
        assert files(stopped) == files(whole)

    def test_there_and_back_again(self, small, stopped, monkeypatch, capsys, events):
        """Killed on the other plan it goes on there, or on the first one."""
        with monkeypatch.context() as patch:
            kill_after(patch, events // 4)
            assert in_a_process(resume, stopped, "--plan", small.other) == -signal.SIGKILL
        states = record_of(stopped)["checkpoints"]
        assert 7 < len(states) < STATES
        back = shutil.copytree(stopped, stopped.with_name("back"))
        for folder, options, last in (stopped, (), "builds/2"), (back, ("--plan", small.plan), "build"):
            assert resume(folder, *options) == 0
            assert record_of(folder)["builds"][-1]["folder"] == last
            assert main(["cluster", "check", str(folder)]) == 0
        assert len(record_of(back)["builds"]) == 3
        assert bits(stopped, "states/epoch000004-00000000.npz") != bits(back, "states/epoch000004-00000000.npz")

    def test_what_it_had_made_is_made_again_where_it_is_torn(self, small, stopped, monkeypatch, events):
        """The run goes back to a state of its first build, and on from there on its last one."""
        with monkeypatch.context() as patch:
            kill_after(patch, events // 4)
            assert in_a_process(resume, stopped, "--plan", small.other) == -signal.SIGKILL
        states = record_of(stopped)["checkpoints"]
        for name in states[5:]:
            (stopped / name).write_text("")
        assert resume(stopped) == 0
        assert record_of(stopped)["builds"] == [
            {"folder": "build", "from": states[0]},
            {"folder": "builds/2", "from": states[4]},
        ]
        assert main(["cluster", "check", str(stopped)]) == 0

    def test_from_the_first_state_on(self, small, stopped):
        first = record_of(stopped)["checkpoints"][:1]
        (stopped / "run.json").write_text(json.dumps(record_of(stopped) | {"checkpoints": first, "epochs": []}))
        assert resume(stopped, "--plan", small.other) == 0
        assert [used["folder"] for used in record_of(stopped)["builds"]] == ["build", "builds/2"]
        assert not unlisted(stopped)
        assert main(["cluster", "check", str(stopped)]) == 0

    def test_a_state_that_another_build_made_is_not_taken_for_its(self, small, stopped, capsys):
        assert resume(stopped, "--plan", small.other) == 0
        record = record_of(stopped)
        record["builds"][1]["from"] = record["checkpoints"][3]
        capsys.readouterr()
        (stopped / "run.json").write_text(json.dumps(record))
        said = refusal(capsys, "cluster", "check", stopped)
        assert said == f"{stopped / record['checkpoints'][4]}: is a state of another run"

    def test_what_cannot_go_on_there_is_refused(self, small, stopped, tmp_path, capsys):
        assert main(["plan", "digits_cnn", "arria10x1", "-o", str(tmp_path / "digits"), "--workers", "1"]) == 0
        before = files(stopped)
        for other, said in (
            (tmp_path / "digits", f"{tmp_path}/digits: is a plan of digits_cnn, not of small"),
            (small.model.parent, f"{small.model.parent}: holds no plan.json of fanin plan and no build.json"),
            (tmp_path / "absent", f"{tmp_path}/absent: holds no plan.json of fanin plan and no build.json"),
        ):
            capsys.readouterr()
            assert refusal(capsys, "cluster", "resume", stopped, "--plan", other) == said
        assert files(stopped) == before


class TestOneWriter:
    def test_a_second_one_is_refused(self, small, stopped, capsys):
        before = files(stopped)
        with sole_writer(stopped):
            said = refusal(capsys, "cluster", "resume", stopped)
            process = f"process {os.getpid()} is writing it"
            assert said == f"{stopped}: {process}; wait until it ends, or choose another folder"
            words = "cluster", "run", small.build, small.data, "--on", "golden", "--batch", "8", "-o", stopped
            assert refusal(capsys, *words) == said
        assert files(stopped) == before
        assert resume(stopped) == 0

    def test_two_processes(self, small, tmp_path, monkeypatch, capsys):
        folder, pipe = tmp_path / "run", FORK.Pipe()

        def train(self, images, labels, job, progress, own=Golden.train):
            pipe[1].send("trains")
            pipe[1].recv()
            return own(self, images, labels, job, progress)

        with monkeypatch.context() as patch:
            patch.setattr(Golden, "train", train)
            process = FORK.Process(target=run, args=(small, folder, "--epochs", "1"))
            process.start()
            assert pipe[0].recv() == "trains"
        said = refusal(capsys, "cluster", "resume", folder)
        assert said.startswith(f"{folder}: process {process.pid} is writing it; ")
        process.kill()
        process.join()
        assert resume(folder) == 0

    def test_what_a_killed_one_had_not_written_whole_is_deleted(self, whole, stopped):
        name = f"{scratch.SCRATCH}{scratch.machine()}-{1 << 30}-abc"  # no process has that number
        (stopped / f"states/{name}").write_text("half a state")
        (stopped / name).mkdir()
        assert resume(stopped) == 0
        assert files(stopped) == files(whole)

    def test_a_folder_of_nothing_else_is_free(self, small, tmp_path):
        (tmp_path / "run/.fanin-abc").mkdir(parents=True)  # a user's
        assert run(small, tmp_path / "run", "--epochs", "1") == 0
        assert (tmp_path / "run/.fanin-abc").exists()

    def test_nothing_is_left_of_a_folder_that_nothing_was_written_to(self, small, tmp_path, capsys):
        words = "cluster", "run", small.build, "absent.npz", "-o", tmp_path / "a/b"
        assert refusal(capsys, *words).startswith("absent.npz: ")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["resume {build}", "resume absent"])
def test_what_is_no_run_is_refused(small, tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    words = words.format(**vars(small)).split()
    assert refusal(capsys, "cluster", *words) == f"{words[1]}: holds no run.json of fanin cluster run"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.verilator
def test_in_rtl_a_killed_run_goes_on_to_the_same_files_or_on_two_devices(small, tmp_path):
    """Killed at a random state; what the node counted in the last job is in run.json, too."""
    paths = SimpleNamespace(**vars(small) | {"build": tmp_path / "build"})
    assert main(["cluster", "build", str(small.plan), "-o", str(paths.build)]) == 0
    options = ("--epochs", "3", "--checkpoint", "2", "--on", "rtl")
    assert run(paths, tmp_path / "whole", *options) == 0
    states = sorted((tmp_path / "whole/states").glob("epoch*.npz"))
    assert len(states) > 3
    folder = tmp_path / "run"
    process = FORK.Process(target=run, args=(paths, folder, *options))
    process.start()
    awaited = folder / "states" / random.Random(new_seed()).choice(states[:-2]).name
    while not awaited.exists():
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    other = shutil.copytree(folder, tmp_path / "other")
    assert resume(folder) == 0
    resumed, whole = files(folder), files(tmp_path / "whole")
    traces = [json.loads(each.pop("trace.json"))["otherData"] for each in (resumed, whole)]
    assert resumed == whole
    assert "goes on from" in traces[0]  # the timeline is that of the last part
    assert traces[1] == {}
    assert resume(other, "--plan", small.other) == 0
    found = record_of(other)
    assert (found["bit_exact"], found["frames_compared"], found["build"]["devices"]) == (
        True,
        120,
        ["one", "two"],
    )
    assert main(["cluster", "check", str(other)]) == 0
