"""The live file of ``fanin cluster run`` and ``resume``: frames, and the loss behind every state."""

import json

import pytest

from fanin.cli.main import main
from fanin.cnn.run.execute import LOSS
from fanin.cnn.run.loop import Loop
from tests.fanin.cnn.run.runs import run
from tests.fanin.runs.live import noted


def test_a_run_tells_frames_and_losses_and_one_that_goes_on_those_before(small, tmp_path, monkeypatch, capsys):
    told = noted(monkeypatch)
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        ended = Loop._measure_epoch

        def interrupted(self, epoch):
            ended(self, epoch)
            if epoch == 1:
                raise KeyboardInterrupt

        patch.setattr(Loop, "_measure_epoch", interrupted)
        assert run(small, folder, "--epochs", "3", "--checkpoint", "2") == 130
    last = told[-1]
    assert (told[0]["stage"], last["stage"], last["unit"]) == ("building", "training", "frames")
    assert (last["command"], last["done"], last["total"]) == ("cluster run", 80, 120)
    assert (last["title"], last["now"]) == (str(small.data), {"epoch": "3/3"})
    assert [at for at, _ in last["losses"][LOSS]] == pytest.approx([0.4, 0.8, 1.0, 1.4, 1.8])
    assert main(["cluster", "resume", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = told[-1]
    assert (last["command"], last["done"]) == ("cluster resume", 120)
    losses = dict(last["losses"][LOSS])
    assert [losses[n] for n in (1, 2)] == [epoch["golden"]["loss"] for epoch in found["epochs"][:2]]
    assert not list(folder.glob(".fanin-*"))
