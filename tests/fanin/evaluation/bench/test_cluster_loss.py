"""``fanin bench cluster-loss``: what counts as trained, its figures and limits; runs of both link modes."""

import json

import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import cluster_loss
from fanin.evaluation.bench.cluster_loss import PUBLISHED, RELIABLE, RunLength, Trial


def test_frames_behind_the_last_state_do_not_count():
    assert [RunLength(frames, 1).frames_in_batches for frames in (0, 31, 32, 95, 256)] == [0, 0, 32, 64, 256]


class Made:
    """Outcomes as if every loss halved what is left, of the published mode much more."""

    slow = 1

    def __init__(self, *, published):
        self._published = published

    def run(self, loss, seed):
        if self._published and loss:
            return RunLength(40 if loss < 1e-3 else 3, 4_000)
        return RunLength(256, 25_600 * (self.slow if loss else 1))


class MadeModel:
    """A model by which a loss costs a twentieth."""

    def share(self, loss):
        return 95.0


@pytest.fixture
def figures(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cluster_loss, "Trial", Made)
    monkeypatch.setattr(cluster_loss, "Model", MadeModel)

    def run():
        status = main(["bench", "cluster-loss", "--json", "-o", str(tmp_path)])
        return status, {one["name"]: one for one in json.loads(capsys.readouterr().out)["figures"]}

    return run


def test_rates_are_beside_those_without_loss(figures, tmp_path):
    status, found = figures()
    assert status == 1
    assert found["reliable, 1 % lost: off the model"]["value"] == pytest.approx(100 * 5 / 95)
    assert [name for name, one in found.items() if one["ok"] is False] == [
        f"reliable, {loss} % lost: off the model" for loss in ("0.01", "0.1", "1", "2")
    ]
    assert found["reliable, no loss: cycles a frame"]["value"] == 100
    assert found["reliable, 2 % lost"]["value"] == 100
    assert found["published, 0.01 % lost"]["value"] == pytest.approx(80)
    assert found["published, 1 % lost"]["value"] == 0
    assert found["published, 1 % lost: frames until the end"]["value"] == 3
    drawn = json.loads((tmp_path / "cluster-loss.json").read_text())
    assert drawn["series"][RELIABLE] == [[0.01, 100.0], [0.1, 100.0], [1.0, 100.0], [2.0, 100.0]]
    assert (tmp_path / "cluster-loss.png").stat().st_size > 1000


def test_a_reliable_link_that_is_slow_misses_its_limit(figures, monkeypatch):
    monkeypatch.setattr(Made, "slow", 3)
    status, found = figures()
    assert status == 1
    assert not found["reliable, 1 % lost"]["ok"]


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("mode", [RELIABLE, PUBLISHED])
def test_a_lossy_run_of_either_mode(mode):
    trial = Trial(published=mode == PUBLISHED)
    whole, lossy = trial.run(0, 0), trial.run(0.02, 1)
    assert whole.frames == cluster_loss.FRAMES
    assert (lossy.frames == whole.frames) == (mode == RELIABLE)
    assert lossy.cycles > whole.cycles if mode == RELIABLE else lossy.cycles < whole.cycles
