"""``fanin rerun`` of builds and runs of ``fanin cluster``."""

import shutil

import pytest

from fanin.cnn.run import rtl
from fanin.cnn.run.loop import Loop
from tests.fanin.cli import rerun
from tests.fanin.cnn.run.runs import run

STATES = {f"states/epoch00000{n}-00000000.npz" for n in range(3)}


@pytest.fixture
def stopped(small, tmp_path, monkeypatch):
    """A run of two epochs that was stopped behind its first."""

    def end(loop, epoch, whole=Loop._measure_epoch):
        whole(loop, epoch)
        if epoch == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_measure_epoch", end)
        assert run(small, tmp_path / "run", "--epochs", "2") == 130
    return tmp_path / "run"


def test_a_build_and_a_run_come_to_the_same_bits(capsys, small, tmp_path, monkeypatch):
    shutil.copytree(small.build, tmp_path / "build")
    monkeypatch.setattr(rtl, "Rtl", lambda *_: None)  # the simulator is no part of the folder
    assert rerun.same_again(capsys, tmp_path / "build") == {"build.json", "memory/fpga0.json"}
    assert run(small, tmp_path / "run", "--epochs", "2") == 0
    assert rerun.same_again(capsys, tmp_path / "run") == {*STATES, "run.json"}


def test_a_run_that_was_stopped_is_compared_when_it_has_come_to_its_end(capsys, stopped, small):
    said = rerun.refusal(capsys, stopped)
    assert said == f"{stopped}: was stopped before its end, and has no results to compare with"
    assert rerun.run("cluster", "resume", stopped) == 0
    assert rerun.same_again(capsys, stopped) == {*STATES, "run.json"}


def test_a_run_that_went_on_with_another_plan_is_refused(capsys, stopped, small):
    assert rerun.run("cluster", "resume", stopped, "--plan", small.other) == 0
    said = rerun.refusal(capsys, stopped)
    assert said == f"{stopped}: resumed with another plan, {small.other}; no single command repeats it"


def test_a_build_that_was_edited_is_a_changed_input(capsys, small, tmp_path):
    shutil.copytree(small.build, tmp_path / "build")
    assert (
        rerun.run(
            *f"cluster run {tmp_path / 'build'} {small.data} --on golden --epochs 1 --batch 8 -o".split(),
            tmp_path / "run",
        )
        == 0
    )
    (tmp_path / "build" / "plan" / "report.html").write_text("decides nothing")
    assert rerun.same_again(capsys, tmp_path / "run")
    with (tmp_path / "build" / "build.json").open("a") as file:
        file.write("\n")
    said = rerun.refusal(capsys, tmp_path / "run", "-o", tmp_path / "new")
    assert said == f"{tmp_path / 'build' / 'build.json'}: is not what the run read (--changed-inputs continues)"
