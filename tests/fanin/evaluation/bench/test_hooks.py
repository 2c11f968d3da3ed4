"""``fanin bench hooks``: figures, table and limits of given outcomes; what is refused; two hooks trained."""

import json

import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import hooks
from fanin.torch import hook_trial
from fanin.torch.hook_trial import TrainingResult

TOP = f"top 1 %{hook_trial.FEEDBACK}"


def _only(monkeypatch, *names):
    monkeypatch.setattr(hook_trial, "HOOK_SETUPS", {name: hook_trial.HOOK_SETUPS[name] for name in names})


def _rows(capsys, *arguments, status=0):
    assert main(["bench", "hooks", "--json", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return {row["name"]: row for row in json.loads(captured.out)["figures"]}, captured.err


def test_outcomes_become_figures_and_a_table(monkeypatch, capsys, tmp_path):
    _only(monkeypatch, "none", TOP)
    given = {
        "none": [TrainingResult(0.96, 2000.0, {10.0: 3e-6}), TrainingResult(0.94, 2000.0, {10.0: 3e-6})],
        TOP: [TrainingResult(0.95, 400.0, {10.0: 1e-6}), TrainingResult(0.90, 600.0, {10.0: 2e-6})],
    }
    monkeypatch.setattr(hook_trial, "trials", lambda *_: iter(given.items()))
    rows, said = _rows(capsys, "--seeds", 2, "-o", tmp_path, status=1)
    assert rows["none: accuracy"]["value"] == pytest.approx(95)
    assert rows[f"{TOP}: lost"]["value"] == pytest.approx(2.5)
    assert not rows[f"{TOP}: lost"]["ok"]
    assert f"{TOP}: lost" in said
    assert rows[f"{TOP}: a node sends in a step"]["value"] == 500
    assert rows[f"{TOP}: collectives of a step, 10 Gb/s"]["value"] == pytest.approx(1.5)
    page = (tmp_path / hooks.PAGE).read_text()
    assert "| none | 95.0 ± 1.4 | 0.0 ± 0.0 | 2.0 | 1.0 | 3.0 |" in page
    assert f"| {TOP} | 92.5 ± 3.5 | 2.5 ± 2.1 | 0.5 | 4.0 | 1.5 |" in page


def test_limits_are_of_hooks_that_there_are():
    assert set(hooks.LIMITED) < set(hook_trial.HOOK_SETUPS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "--seeds 0: must be at least 1"),
        (["--epochs", "0"], "--epochs 0: must be at least 1"),
        (["-o", "/dev/null/there"], "/dev/null/there"),
    ],
)
def test_what_is_refused(arguments, message, capsys):
    assert main(["bench", "hooks", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_rank_that_fails_ends_all_with_its_cause(monkeypatch, capsys, tmp_path):
    # The ranks do not know the second setup.
    monkeypatch.setattr(hook_trial, "HOOK_SETUPS", {"none": None, "another": None})
    assert main(["bench", "hooks", "--seeds", "1", "--epochs", "1", "-o", str(tmp_path)]) == 1
    assert "a rank of the training has failed: KeyError: 'another'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_hooks_trained(monkeypatch, capsys, tmp_path):
    power = "PowerSGD, rank 1"
    _only(monkeypatch, "none", "fp16", power)
    rows, _ = _rows(capsys, "--seeds", 1, "--epochs", 4, "-o", tmp_path)
    assert all(rows[f"{name}: accuracy"]["value"] > 60 for name in ("none", "fp16", power))
    sizes = {name: rows[f"{name}: a node sends in a step"]["value"] for name in ("none", "fp16", power)}
    assert sizes["none"] == pytest.approx(2 * sizes["fp16"], rel=0.01)
    assert sizes[power] < sizes["none"] / 10
