"""Runs on the golden model: files, states, what they follow from; and a line for what cannot be run."""

import json
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.base.errors import ToolFailed
from fanin.base.scratch import LIVE_FILE, WRITER_FILE
from fanin.cli.main import main
from fanin.cnn.run import execute, models
from fanin.cnn.run.build import open_build
from fanin.cnn.run.checkpoint import load_checkpoint, save_checkpoint
from fanin.cnn.run.folder import open_run
from fanin.cnn.training import Training
from fanin.runs.manifest import MANIFEST_FILE
from tests.fanin.cli.command import unlisted
from tests.fanin.cli.json_page import documented
from tests.fanin.cnn.run.runs import bits, refusal, run


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "run"
    assert run(small, folder, "--epochs", "3", "--seed", "2") == 0
    return folder


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "copy")


def test_a_run_keeps_its_build_its_states_and_a_report(small, done):
    record = json.loads((done / "run.json").read_text())
    kept = {path.name for path in done.iterdir()}
    assert kept == {MANIFEST_FILE, "build", "provenance.json", "report.html", "run.json", "states"}
    assert not unlisted(done)
    states = [f"states/epoch00000{n}-00000000.npz" for n in range(4)]
    assert record["checkpoints"] == states
    assert sorted(f"states/{path.name}" for path in (done / "states").iterdir()) == states
    assert open_build(done / "build") == open_build(small.build)
    assert (record["error"], record["bit_exact"], record["on"]) == (None, None, "golden")
    assert (record["frames"], record["data"]["train"], record["data"]["test"]) == (120, 40, 12)
    assert [epoch["epoch"] for epoch in record["epochs"]] == [1, 2, 3]
    losses = [epoch["golden"]["loss"] for epoch in record["epochs"]]
    assert losses[2] < losses[0]
    assert record["accuracy"] == record["epochs"][2]["golden"]["accuracy"]
    assert record["training"]["schedule"] == "cosine"
    assert (record["training"]["batch"], record["training"]["seed"]) == (8, 2)


def test_a_run_is_summed_up_in_a_table(small, tmp_path, capsys):
    assert run(small, tmp_path / "run", "--epochs", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"small on {small.data}, in the golden model: batches of 8"
    columns = [f"{what} {machine}" for what in ("loss", "accuracy") for machine in ("golden", "float64")]
    assert re.split(r"\s{2,}", lines[2].strip()) == ["epoch", "lr", *columns]
    assert lines[-1].split() == ["report", str(tmp_path / "run/report.html")]


def test_json_is_what_run_json_has(small, tmp_path, capsys):
    assert run(small, tmp_path / "run", "--epochs", "1", "--json") == 0
    assert documented("cluster run", capsys.readouterr().out) == json.loads(
        (tmp_path / "run/run.json").read_text()
    )


def test_the_same_run_has_the_same_bits_and_another_seed_others(small, done, tmp_path):
    last = "states/epoch000003-00000000.npz"
    for seed, same in ((2, True), (3, False)):
        folder = tmp_path / str(seed)
        assert run(small, folder, "--epochs", "3", "--seed", seed) == 0
        assert (bits(folder, last) == bits(done, last)) == same


def test_states_every_two_batches_change_no_bit(small, done, tmp_path):
    folder = tmp_path / "run"
    assert run(small, folder, "--epochs", "3", "--seed", "2", "--checkpoint", "2") == 0
    found = open_run(folder).states
    places = ["0-00000000", "0-00000016", "0-00000032", "1-00000000", "1-00000016"]
    assert [name.removeprefix("states/epoch00000").removesuffix(".npz") for name in found[:5]] == places
    assert len(found) == 10
    assert bits(folder, found[-1]) == bits(done, found[-1])
    assert main(["cluster", "check", str(folder)]) == 0


def test_first_parameters_may_come_from_a_file(small, done, tmp_path, capsys):
    first = tmp_path / "first.npz"
    assert main(["cluster", "init", str(small.model), "--seed", "2", "-o", str(first)]) == 0
    assert capsys.readouterr().out == f"{first}: 187 parameters of small, seed 2\n"
    folder = tmp_path / "run"
    assert run(small, folder, "--epochs", "3", "--seed", "2", "--init", first) == 0
    last = "states/epoch000003-00000000.npz"
    assert bits(folder, last) == bits(done, last)
    assert main(["cluster", "init", str(small.model), "--seed", "9", "-o", str(first)]) == 0
    assert run(small, folder, "--epochs", "3", "--seed", "2", "--init", first) == 0
    assert bits(folder, last) != bits(done, last)


class TestCheck:
    def test_every_state_is_the_golden_model_s(self, done, capsys):
        assert main(["cluster", "check", str(done)]) == 0
        assert capsys.readouterr().out == f"{done}: 3 states, every bit is the golden model's\n"
        assert main(["cluster", "check", str(done), "--json"]) == 0
        assert documented("cluster check", capsys.readouterr().out) == {
            "states": 3,
            "complaints": [],
            "error": None,
        }

    def test_one_bit_shows_in_the_state_that_has_it_and_in_the_next(self, copy, capsys):
        found = open_run(copy)
        name = found.states[2]
        state = found.state(name)
        weights = state.states[1]["weights"]
        weights.view(np.uint32)[2, 2, 1, 3] ^= 1 << 20
        save_checkpoint(copy / name, found.network, state)
        assert main(["cluster", "check", str(copy)]) == 1
        out = capsys.readouterr().out.splitlines()
        assert out[0].startswith(f"{name}: conv1/weights: 1 of 72 words differ; word 71 is 0x")
        assert out[1].startswith(f"{found.states[3]}: ")
        assert out[2] == f"{copy}: 3 states, not all are the golden model's"

    def test_states_that_changed_places_are_refused(self, copy, capsys):
        first, second = (copy / name for name in open_run(copy).states[1:3])
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
        said = refusal(capsys, "cluster", "check", copy)
        assert said == f"{first}: is the state after epoch 2 and 0 frames"

    def test_other_data_is_refused(self, copy, capsys, tmp_path):
        record = json.loads((copy / "run.json").read_text())
        with np.load(record["data"]["name"]) as archive:
            arrays = dict(archive)
        arrays["x_test"][3, 2, 1, 0] += 1
        np.savez(tmp_path / "other.npz", **arrays)
        record["data"]["name"] = str(tmp_path / "other.npz")
        (copy / "run.json").write_text(json.dumps(record))
        said = refusal(capsys, "cluster", "check", copy)
        assert said == f"{tmp_path}/other.npz: is not what {copy} was trained on"

    def test_a_state_of_another_run_is_refused(self, copy, capsys):
        found = open_run(copy)
        state = load_checkpoint(copy / found.states[1], found.network)
        about = state.info.__class__(state.info.name, state.info.model)
        save_checkpoint(copy / found.states[1], found.network, state.__class__(about, state.states))
        assert (
            refusal(capsys, "cluster", "check", copy) == f"{copy / found.states[1]}: is a state of another run"
        )

    def test_states_that_are_left_out_or_not_the_run_s_are_refused(self, copy, capsys):
        record = json.loads((copy / "run.json").read_text())
        names = record["checkpoints"]
        for checkpoints, said in (
            (names[:1], "names 1 of 4 states"),
            (names[:3], "names 3 of 4 states"),
            ([names[0], f"../{copy.name}/{names[1]}", *names[2:]], f"../{copy.name}/{names[1]} is no state of"),
            ([*names, "states/more.npz"], "states/more.npz is no state of this training"),
        ):
            (copy / "run.json").write_text(json.dumps(record | {"checkpoints": checkpoints}))
            assert refusal(capsys, "cluster", "check", copy).startswith(f"{copy}/run.json: checkpoints: {said}")
        (copy / "run.json").write_text(json.dumps(record | {"checkpoints": names[:1], "error": "stopped"}))
        said = refusal(capsys, "cluster", "check", copy)
        assert said.endswith("has one state; a check needs two: stopped")

    def test_a_run_is_checked_from_any_folder(self, done, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert Path(json.loads((done / "run.json").read_text())["data"]["name"]).is_absolute()
        assert main(["cluster", "check", str(done)]) == 0

    def test_what_is_no_run_is_refused(self, small, capsys):
        said = refusal(capsys, "cluster", "check", small.build)
        assert said == f"{small.build}: holds no run.json of fanin cluster run"


@pytest.fixture
def spoil(small, tmp_path):
    """The data with all words of a frame to train on replaced."""

    def replace(frame, word):
        with np.load(small.data) as archive:
            arrays = dict(archive)
        arrays["x_train"][frame] = word
        np.savez(tmp_path / "spoilt.npz", **arrays)
        return SimpleNamespace(**vars(small) | {"data": tmp_path / "spoilt.npz"})

    return replace


def test_a_frame_that_overflows_ends_the_run_and_names_layer_frame_and_last_state(spoil, tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(spoil(17, 3.4e38), folder, "--checkpoint", "1") == 1
    frame = list(Training().order(0, 40)).index(17)
    last = folder / f"states/epoch000000-{frame // 8 * 8:08}.npz"
    said = f"conv1: first infinity or NaN in the output of frame {frame} of epoch 1"
    assert capsys.readouterr().err == f"fanin: error: {said}; the last state is {last}\n"
    assert json.loads((folder / "run.json").read_text())["error"] == said
    assert last.is_file()
    assert main(["cluster", "check", str(folder)]) == 0


def test_a_state_that_overflows_is_not_kept(spoil, tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(spoil(Training().order(0, 40)[-1], 1e25), folder, "--epochs", "1") == 1
    said = "conv1/weights: infinity or NaN after frame 40 of epoch 1"
    assert capsys.readouterr().err.startswith(
        f"fanin: error: {said}; the last state is {folder}/states/epoch000000-"
    )


def stop_in_epoch_2(monkeypatch, stop):
    """``stop`` is called in place of the second epoch's training."""

    def train(self, images, labels, job, progress, own=models.Golden.train):
        if job.eta != np.float32(-0.1 / 8):
            stop()
        return own(self, images, labels, job, progress)

    monkeypatch.setattr(models.Golden, "train", train)


@pytest.mark.parametrize(
    ("number", "cause", "status"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_run_that_is_stopped_keeps_its_states(small, tmp_path, monkeypatch, capsys, number, cause, status):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    stop_in_epoch_2(monkeypatch, lambda: signal.raise_signal(number))
    folder = tmp_path / "run"
    try:
        if number == signal.SIGTERM:
            with pytest.raises(SystemExit) as caught:
                run(small, folder, "--epochs", "3")
            assert caught.value.code == status
        else:
            assert run(small, folder, "--epochs", "3") == status
    finally:
        signal.signal(signal.SIGINT, before)
    last = folder / "states/epoch000001-00000000.npz"
    assert capsys.readouterr().err == f"fanin: error: {cause}; the last state is {last}\n"
    record = json.loads((folder / "run.json").read_text())
    assert record["error"] == cause
    assert [name[12:19] for name in record["checkpoints"]] == ["000000-", "000001-"]
    assert [epoch["epoch"] for epoch in record["epochs"]] == [1]
    assert (folder / "report.html").is_file()
    assert main(["cluster", "check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.endswith(f": 1 state, every bit is the golden model's\n{folder}: not a whole run: {cause}\n")


def test_a_run_that_is_killed_keeps_its_states(small, tmp_path, monkeypatch, capsys):
    """In a process of its own, which ends on the spot."""
    folder = tmp_path / "run"
    stop_in_epoch_2(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
    process = multiprocessing.get_context("fork").Process(target=run, args=(small, folder, "--epochs", "3"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    kept = {path.name for path in folder.iterdir()}
    assert kept == {LIVE_FILE, MANIFEST_FILE, WRITER_FILE, "build", "provenance.json", "run.json", "states"}
    states = json.loads((folder / "run.json").read_text())["checkpoints"]
    assert states == [f"states/{path.name}" for path in sorted((folder / "states").iterdir())]
    assert len(states) == 2
    assert main(["cluster", "check", str(folder)]) == 0
    said = f"{folder}: not a whole run: the run has not come to its end\n"
    assert capsys.readouterr().out.endswith(said)
    monkeypatch.undo()
    assert run(small, folder, "--epochs", "1") == 0  # and its folder takes another run
    assert len(open_run(folder).states) == 2


def test_a_run_whose_node_cannot_be_made_leaves_the_earlier_one(small, copy, monkeypatch, capsys):
    def machines_of(setup):
        raise ToolFailed("g++ is out of memory")

    monkeypatch.setattr(execute, "machines_of", machines_of)
    assert run(small, copy, "--epochs", "1") == 1
    assert capsys.readouterr().err == "fanin: error: g++ is out of memory\n"
    assert main(["cluster", "check", str(copy)]) == 0
    assert "3 states" in capsys.readouterr().out


def test_nothing_said_plans_builds_and_trains_the_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["cluster", "run", "--on", "golden", "--epochs", "1"]) == 0
    folder = tmp_path / "runs/cluster"
    assert open_build(folder / "build").planned.network.name == "digits_cnn"
    assert (folder / "build/plan/report.html").is_file()
    record = json.loads((folder / "run.json").read_text())
    assert record["frames"] == 1347
    assert record["epochs"][0]["golden"]["train_accuracy"] > 0.4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--epochs 0", "--epochs must be in 1…100,000, not 0"),
        ("--batch 0", "--batch must be in 1…16,777,215, not 0"),
        ("--batch 41", "--batch must be at most 40, the frames of {data}, not 41"),
        ("--lr nan", "--lr must be in 0…1,000,000, not nan"),
        ("--lr -1", "--lr must be in 0…1,000,000, not -1"),
        ("--momentum 2", "--momentum must be in 0…1, not 2"),
        ("--seed -1", "--seed must be in 0…4,294,967,295, not -1"),
        ("--checkpoint 0", "--checkpoint must be in 1…16,777,216, not 0"),
        (
            "--schedule step:1:1e-9 --epochs 9",
            "--lr must be 0, or lr / batch at least 2^-126 in every epoch: in ",
        ),
        ("--schedule linear", "--schedule must be constant, cosine or step:EPOCHS:FACTOR"),
        ("--on fpga", "argument --on: invalid choice: 'fpga'"),
        ("--init absent.npz", "absent.npz: cannot be read: No such file or directory"),
        ("--init {data}", "{data}: no checkpoint of fanin cluster"),
        ("-o {model}", "{model}: is a file; -o names a directory"),
        ("-o {plan}", "{plan}: exists and holds no run.json of an earlier run"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(small, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    words = [
        "cluster",
        "run",
        small.build,
        small.data,
        "--on",
        "golden",
        *options.format(**vars(small)).split(),
    ]
    assert refusal(capsys, *words).startswith(said.format(**vars(small)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run {plan}", "{plan}: holds no build.json of fanin cluster build; build the plan first"),
        ("run absent", "absent: holds no build.json of fanin cluster build"),
        ("run {build}", "digits: its images are 8×8×1; the network takes 6×6×2"),
        ("run {build} faces", "faces: no folder with MNIST's four idx files, no .npz"),
        ("build {build} -o x", "{build}/plan.json: cannot be read: No such file or directory"),
        ("build {plan} -o {plan}", "{plan}: exists and holds no build.json of an earlier build"),
        ("build {plan}", "the following arguments are required: -o"),
        ("init absent.py -o x.npz", "absent.py: no such file"),
        ("init {model} --seed -1 -o x.npz", "--seed must be in 0…4,294,967,295, not -1"),
        ("init {model} --seed 1 --from {data} -o x.npz", "--seed and --from: parameters are drawn, or taken"),
        ("init {model} --from {data} -o x.npz", "{data}: conv1/weights is missing"),
        ("init {model} -o {plan}", "{plan}: cannot be written: Is a directory"),
        ("export {build} -o x.npz", "{build}: holds no run.json of fanin cluster run"),
        ("export {build} -o x.tflite", "x.tflite: ends with none of .onnx, .npz, .pt"),
    ],
)
def test_other_parts_refuse_in_one_line_and_write_nothing(small, tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    words = ["cluster", *words.format(**vars(small)).split()]
    assert refusal(capsys, *words).startswith(said.format(**vars(small)))
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_no_json_is_named_with_its_place(small, copy, capsys, tmp_path):
    text = (copy / "run.json").read_text()
    at = text.index('"states/epoch000002')
    (copy / "run.json").write_text(text[:at] + "," + text[at:])
    line = text[:at].count("\n") + 1
    for words in ("check", copy), ("export", copy, "-o", tmp_path / "x.npz"):
        assert refusal(capsys, "cluster", *words).startswith(f"{copy}/run.json:{line}:")
    (copy / "run.json").write_text(text[:at])
    assert refusal(capsys, "cluster", "check", copy).startswith(f"{copy}/run.json:{line}:")
    build = shutil.copytree(small.build, tmp_path / "build")
    (build / "build.json").write_text("{\n no}")
    said = refusal(capsys, "cluster", "run", build, small.data, "-o", tmp_path / "run")
    assert said.startswith(f"{build}/build.json:2:2: ")


def test_a_build_whose_plan_was_changed_is_refused(small, tmp_path, capsys):
    build = shutil.copytree(small.build, tmp_path / "build")
    record = json.loads((build / "build.json").read_text())
    (build / "build.json").write_text(json.dumps(record | {"plan": "0" * 64}))
    said = refusal(capsys, "cluster", "run", build, small.data, "-o", tmp_path / "run")
    assert said == f"{build}: its plan is not the one that was built; build again"
    (build / "plan/plan.json").write_text((build / "plan/plan.json").read_text().replace("0.9", "0.8"))
    said = refusal(capsys, "cluster", "run", build, small.data, "-o", tmp_path / "run")
    assert said.startswith(f"{build}/plan/plan.json: the plan was edited: ")
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
