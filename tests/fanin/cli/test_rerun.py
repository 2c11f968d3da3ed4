"""``fanin rerun``: every kind of run comes to the same bits; what differs is named, bad input is refused."""

import argparse
import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import fanin
from fanin.base.errors import InputError
from fanin.cli.main import build_parser
from fanin.cli.rerun import _default_output
from tests.fanin.cli.rerun import refusal, run, same_again
from tests.support import slow

MODEL = """
from fanin.planner import *
x = add_input("image", [6, 6, 2])
x = bias(dense(3, x))
add_output("class", soft_cross_loss(x, add_input("label", [3])))
"""
RING = "ring train --layers 64,16,10 --nodes 2 --epochs 1 --batch 128"
PS = "ps train --workers 2 --epochs 1 --no-optimum"
TRAIN = "train breast_cancer --preset tiny --workers 2 --epochs 2"
LOSSY = "--drop 0.02 --duplicate 0.02 --reorder 0.02"
TRAINED = {"model.npz", "run.json", "trace.json", "frames.pcap", "job.json", "aggregation.p4"}


@pytest.mark.parametrize(
    ("command", "results"),
    [
        (f"{RING} --on model", {"state.npz", "run.json", "trace.json"}),
        (f"{PS} --on model", {"model.npy", "run.json", "trace.json"}),
        ("p4 emit", {"aggregation.p4", "job.json", "aggregation.lua", "ptf/aggregation_test.py"}),
        pytest.param(TRAIN, TRAINED, marks=pytest.mark.verilator),
        *slow(
            (f"{TRAIN} --drop 0.05 --seed 7", TRAINED),
            (f"{RING} --on rtl {LOSSY} --pcap frames", {"state.npz", "run.json", "trace.json", "frames.pcap"}),
            (f"{PS} --on rtl {LOSSY} --pcap frames", {"model.npy", "run.json", "trace.json", "frames.pcap"}),
            ("board build ecpix5 --no-place", {"board.json", "project/top.debug.v", "project/top.il"}),
        ),
    ],
)
def test_the_bits_are_the_same(capsys, tmp_path, monkeypatch, command, results):
    monkeypatch.chdir(tmp_path)
    assert run(*command.split(), "-o", "run") == 0
    assert same_again(capsys, tmp_path / "run") == results


def test_a_resumed_run_reads_the_data_of_the_run_that_it_resumed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (60, 2, 2)).astype(np.uint8)
    sets = {"x_train": images, "y_train": np.arange(60) % 3, "x_test": images[:9], "y_test": np.arange(9) % 3}
    np.savez("set.npz", **sets)
    train = "ring train --on model"
    assert run(*f"{train} set.npz --nodes 2 --batch 5 --epochs 1 -o first".split()) == 0
    assert run(*f"{train} --resume first --epochs 2 -o run".split()) == 0
    assert same_again(capsys, tmp_path / "run") == {"state.npz", "run.json", "trace.json"}
    np.savez("set.npz", **sets | {"y_train": np.arange(60) % 2})
    said = f"{tmp_path / 'set.npz'}: is not what the run read (--changed-inputs continues)"
    assert refusal(capsys, "run", "-o", "other") == said


def test_what_runs_is_said_before_it_runs(capsys, made, monkeypatch):
    monkeypatch.setattr("fanin.cli.rerun._carry_out", lambda again: (_ for _ in ()).throw(InputError("now")))
    found = json.loads((made / "provenance.json").read_text())
    assert run("rerun", made) == 2
    said = f"runs again, as in {found['working_directory']}: fanin {shlex.join(found['argv'])}"
    assert capsys.readouterr().err == f"fanin: {said}\nfanin: error: now\n"


def test_a_program_that_is_not_listed_does_not_run(capsys, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    assert run("plan", tmp_path / "model.py", "arria10x1", "--workers", 1, "-o", tmp_path / "plan") == 0
    (tmp_path / "model.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{MODEL}")
    _edit(tmp_path / "plan", inputs=[])
    said = f"provenance.json: inputs: model is not listed, but argv would read {tmp_path / 'model.py'}"
    assert said in refusal(capsys, tmp_path / "plan")
    assert not (tmp_path / "ran").exists()


def test_an_input_that_argv_does_not_name_is_not_read(capsys, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{MODEL}")
    for name in ("model.py", "evil.py"):
        assert run("plan", tmp_path / name, "arria10x1", "--workers", 1, "-o", tmp_path / name[:-3]) == 0
    (tmp_path / "ran").unlink()
    inputs = json.loads((tmp_path / "evil" / "provenance.json").read_text())["inputs"]
    _edit(tmp_path / "model", inputs=inputs)
    said = f"inputs: model is {evil}, but argv names {tmp_path / 'model.py'}"
    assert said in refusal(capsys, tmp_path / "model")
    assert not (tmp_path / "ran").exists()


def test_so_are_those_of_a_package_and_of_plans(capsys, tmp_path):
    assert run("verilog", "adder-tree", "--package", tmp_path / "made") == 0
    assert "adder_tree.v" in same_again(capsys, tmp_path / "made")
    (tmp_path / "model.py").write_text(MODEL)
    plan = ("plan", tmp_path / "model.py", "arria10x1", "--workers", 1)
    assert run(*plan, "-o", tmp_path / "plan") == run(*plan, "--mp", "1,2", "-o", tmp_path / "sweep") == 0
    assert same_again(capsys, tmp_path / "plan") == {"plan.json", "connections.json", "devices/fpga0.json"}
    assert {"sweep.json", "plans/devices1-mp2/plan.json"} <= same_again(capsys, tmp_path / "sweep")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the model in a folder with its data."""
    folder = tmp_path_factory.mktemp("finished")
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 255, (64, 4, 4)).astype(np.uint8), rng.integers(0, 10, 64)
    np.savez(folder / "data.npz", x_train=images, y_train=labels, x_test=images[:8], y_test=labels[:8])
    words = "--on model --layers 16,8,10 --nodes 2 --epochs 2 --batch 8"
    assert run("ring", "train", folder / "data.npz", *words.split(), "-o", folder / "run") == 0
    return folder


@pytest.fixture
def made(finished, tmp_path):
    """A copy of that run; its data are those of ``finished``."""
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path / "run"


def _edit(folder, **fields):
    path = folder / "provenance.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_provenance_says_what_the_results_came_from(finished):
    found = json.loads((finished / "run" / "provenance.json").read_text())
    assert found["argv"][:2] == ["ring", "train"]
    assert found["seeds"] == {"seed": 0, "configuration.seed": 0}
    (data,) = found["inputs"]
    assert (data["option"], data["path"]) == ("data", str(finished / "data.npz"))
    assert (found["fanin"]["version"], found["versions"]["numpy"]) == (fanin.__version__, np.__version__)
    assert {*found["results"]} == {"run.json", "state.npz", "trace.json"}


def test_a_folder_that_a_user_stands_in_has_its_rerun_beside_it(tmp_path, monkeypatch):
    (tmp_path / "run/states").mkdir(parents=True)
    for place, folder in (("run", "."), ("run/states", ".."), ("", "run"), ("", "run/states/..")):
        monkeypatch.chdir(tmp_path / place)
        assert _default_output(Path(folder)).resolve() == tmp_path / "run-rerun"


def test_a_rerun_can_be_rerun(capsys, made):
    assert same_again(capsys, made) == same_again(capsys, made.with_name("run-rerun"))


def test_what_differs_first_is_named_and_what_has_changed(capsys, made, finished, monkeypatch):
    recorded = json.loads((made / "provenance.json").read_text())
    _edit(made, argv=[*recorded["argv"][:-2], "--lr", "0.05"])  # as if the default had been another
    monkeypatch.setattr(fanin, "__version__", "9.9")
    assert run("rerun", made, "-o", made.parent / "new") == 1
    out, err = capsys.readouterr()
    assert "state.npz   DIFFERS: parameters0: " in out
    assert "run.json    DIFFERS: loss was " in out
    assert "options.lr: 0.1 then, 0.05 now" in out
    assert f"fanin.version: {recorded['fanin']['version']} then, 9.9 now" in out
    assert err.endswith(f"\nfanin: error: {made.parent / 'new'}: 2 of 3 results differ: state.npz, run.json\n")


def test_a_result_that_was_edited_after_the_run_is_told(capsys, made):
    recorded = json.loads((made / "provenance.json").read_text())
    _edit(made, argv=[*recorded["argv"], "--lr", "0.05"])
    (made / "state.npz").write_bytes(b"edited")
    assert run("rerun", made) == 1
    assert f"state.npz   DIFFERS: {made / 'state.npz'} was changed after the run" in capsys.readouterr().out


def test_an_input_that_has_changed_is_refused_unless_it_is_asked_for(capsys, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "all")
    folder, data = tmp_path / "all" / "run", tmp_path / "all" / "data.npz"
    recorded = json.loads((folder / "provenance.json").read_text())
    before = recorded["inputs"][0]["path"]
    argv = [str(data) if word == before else word for word in recorded["argv"]]
    _edit(folder, inputs=[recorded["inputs"][0] | {"path": str(data)}], argv=argv)
    with np.load(data) as archive:
        arrays = dict(archive)
    np.savez(data, **arrays | {"y_test": arrays["y_test"][::-1]})
    said = refusal(capsys, folder)
    assert said == f"{data}: is not what the run read (--changed-inputs continues)"
    assert not folder.with_name("run-rerun").exists()
    assert run("rerun", folder, "--changed-inputs") == 1
    assert "\n  data: " in capsys.readouterr().out
    data.unlink()
    assert refusal(capsys, folder, "--changed-inputs", "-o", tmp_path / "x") == (
        f"{data}: is missing; the run read it"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "holds no provenance.json, the record of its inputs"),
        ("{", "provenance.json:1:2: Expecting property name enclosed in double quotes"),
        ("[]", "provenance.json: must be an object, not []"),
        ("{}", 'provenance.json: "format" is missing'),
        ('{"format": 0}', "provenance.json: has the format 0 of another version of fanin, not 1"),
        ('{"format": 1}', 'provenance.json: "results" is missing'),
    ],
)
def test_no_or_damaged_provenance_is_refused(capsys, made, content, said):
    if content is None:
        (made / "provenance.json").unlink()
    else:
        (made / "provenance.json").write_text(content)
    assert said in refusal(capsys, made)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": ["--version"]}, "argv: not a command that writes a folder"),
        ({"argv": ["plan", "--help"]}, "argv: not a command that writes a folder"),
        ({"results": {}}, "results: empty; nothing to compare with"),
        ({"argv": ["doctor"]}, "argv: not a command that writes a folder"),
        ({"argv": ["ring", "train", "--no-such"]}, "argv: unrecognized arguments: --no-such"),
        ({"argv": ["rerun", "x"]}, "argv: not a command that writes a folder"),
        ({"argv": 3}, '"argv" must be a list of texts of one line, not 3'),
        ({"results": {"run.json": 3}}, 'results: "run.json" must be a text of one line, not 3'),
        ({"results": {"../secret": "0"}}, "results: ../secret is no file of the folder"),
        ({"results": {"/etc/passwd": "0"}}, "results: /etc/passwd is no file of the folder"),
        ({"results": {"run.json": "0", "a/../../x": "0"}}, "results: a/../../x is no file of the folder"),
        ({"ended": False}, "was stopped before its end, and has no results to compare with"),
        (
            {"resumed": [{"argv": [], "options": {"plan": "other"}}]},
            "resumed with another plan, other; no single command repeats it",
        ),
    ],
)
def test_what_no_command_comes_to_is_refused(capsys, made, fields, said):
    _edit(made, **fields)
    assert said in refusal(capsys, made)


@pytest.mark.parametrize("name", ["model.npy", "classes/0/run.json"])
def test_a_result_behind_a_link_out_of_the_folder_is_not_read(capsys, made, tmp_path, name):
    (tmp_path / "outside").mkdir()
    link = made / name.split("/")[0]
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "outside", target_is_directory="/" in name)
    _edit(made, results={name: "0"})
    assert refusal(capsys, made).endswith(f"provenance.json: results: {name} is no file of the folder")


def test_a_new_folder_that_is_none_is_refused(capsys, made):
    assert refusal(capsys, made, "-o", made) == f"{made}: is inside the run's folder {made}; choose another -o"
    assert "is inside the run's folder" in refusal(capsys, made, "-o", made / "x" / "y")
    assert refusal(capsys, made, "-o", made.parent) == (
        f"{made.parent}: exists; choose another -o, or remove it"
    )
    assert "holds no provenance.json" in refusal(capsys, made.parent / "none")


def test_a_run_that_failed_fails_again_in_the_same_way(capsys, tmp_path):
    assert run(*f"{PS} --on model --lr 1e9 --decay 1 -o".split(), tmp_path / "run") == 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["error"].startswith("the model diverged")
    assert same_again(capsys, tmp_path / "run") == {"model.npy", "run.json", "trace.json"}


def _parsers(parser, name=""):
    """All commands, and their parsers."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for word, each in action.choices.items():
            yield from _parsers(each, f"{name} {word}".strip())


def test_every_command_that_writes_a_folder_says_what_it_reads():
    """An option that names a folder to write has the metavariable of one."""
    folders = {"DIR", "BUILD", "RUN", "NEW"}
    others = {"rerun", "reproduce", "campaign run"}  # which carry others out
    other = {*others, "codec gradients", "p4 tree"}  # whose folder holds files alone
    for name, parser in _parsers(build_parser()):
        files = parser.get_default("files")
        writes = [a.dest for a in parser._actions if a.dest in ("output", "package") and a.metavar in folders]
        if name in other or name.startswith("bench"):
            continue
        assert bool(writes) == (files is not None), name
        if files:
            options = {action.dest for action in parser._actions}
            assert {*files.paths} <= options, name
            assert writes == [files.output], name


@pytest.mark.parametrize("path", ["fifo", "/dev/null"])
@pytest.mark.parametrize("listed", [False, True])
def test_a_fifo_or_a_device_is_not_read(capsys, made, tmp_path, monkeypatch, path, listed):
    """Neither has a SHA-256; a device may never end, and a FIFO waits for a writer."""
    monkeypatch.setattr("fanin.cli.rerun._carry_out", lambda again: pytest.fail("reads it"))
    os.mkfifo(tmp_path / "fifo")
    place = str(tmp_path / path)
    argv = json.loads((made / "provenance.json").read_text())["argv"]
    for files in ({}, {".": "0"}) if listed else (None,):
        inputs = [] if files is None else [{"option": "data", "path": place, "files": files}]
        _edit(made, argv=[*argv[:2], place, *argv[3:]], inputs=inputs)
        said = refusal(capsys, made, "--changed-inputs")
        if files is None:
            assert said.endswith(f"inputs: data is not listed, but argv would read {place}")
        elif not files:
            assert said.endswith(f"inputs: data has no SHA-256, so {place} is not read")
        else:
            assert said == f"{place}: is neither a file nor a folder; the run read one"
