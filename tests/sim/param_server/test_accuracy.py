"""RDMA-wild's accuracy, epoch by epoch: the same with any K and S, and as good as promised."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.sim.learning.workloads import MODELS
from fanin.sim.param_server.accuracy import (
    DRAWN_EPOCHS,
    SETUPS,
    Study,
    accuracies,
    farthest,
    outcomes,
    outcomes_of_draws,
)
from fanin.sim.param_server.recipes import DIGITS, MNIST, recipe_table

MOST = 0.005  # that K and S may change an epoch's accuracy


def _check_none_differs(found):
    mean = {name: accuracies(runs) for name, runs in found.items()}
    for name, each in mean.items():
        most, epoch = farthest(each, mean["wild"])
        assert most <= MOST, f"{name} is {100 * most:.2f} % from K = S = 1 in epoch {epoch}"


@pytest.mark.slow
@pytest.mark.parametrize(("model", "least"), [("lr", 0.95), ("lr-rff", 0.965), ("fcnn", 0.96)])
def test_digits_are_recognised_as_well_as_promised(model, least, monkeypatch):
    """Mean of five seeds; nothing is lost or repeated in any of them."""
    for name in set(SETUPS) - {"sync", "wild", "K = 2", "K = 4, S = 4"}:
        monkeypatch.delitem(SETUPS, name)
    found = outcomes(Study(model, "design"), range(5), convergence=False)
    final = {name: accuracies(runs)[-1] for name, runs in found.items()}
    assert min(final.values()) >= least
    assert max(final.values()) - min(final.values()) <= MOST
    _check_none_differs({name: found[name] for name in ("wild", "K = 2")})
    for name, runs in found.items():
        assert all(len(run.epochs) == DIGITS[model].epochs for run in runs), name
        assert all(run.tally.lost == run.tally.repeated == 0 for run in runs), name


@pytest.mark.slow
def test_servers_and_slots_change_no_epochs_accuracy_but_by_the_order_of_gradients(monkeypatch):
    """On the digits, means of six orders a seed: of one, an early epoch's accuracy is chance."""
    monkeypatch.delitem(SETUPS, "sync")
    _check_none_differs(outcomes_of_draws(Study("lr", "design", changes={"epochs": DRAWN_EPOCHS}), range(5), 6))


@pytest.mark.slow
@pytest.mark.needs("MNIST")
def test_servers_and_slots_change_no_epochs_accuracy_on_mnist():
    """One order a seed, on the cluster whose server is the bottleneck; Sync-DSGD's is the same, too."""
    study = Study("lr", "cluster", Path(os.environ["MNIST"]), {"epochs": 3})
    _check_none_differs(outcomes(study, range(5), convergence=False))


def _tables(*arguments):
    command = [sys.executable, "-m", "fanin.sim.param_server.accuracy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_folder_that_is_none_is_one_line():
    done = _tables("/nowhere")
    assert done.returncode == 2
    assert done.stderr == (
        "accuracy: error: /nowhere: no such folder; MNIST's four idx files are expected in it\n"
    )


def test_draws_have_as_many_epochs_as_are_asked_for():
    done = _tables("--models", "lr", "--seeds", "1", "--draws", "1", "--epochs", "2")
    assert done.returncode == 0
    assert "| lr, design, 1 draws | epoch 1 | epoch 2 | from wild |" in done.stdout
    assert all(f"\n| {name} | " in done.stdout for name in SETUPS)


def test_there_is_a_recipe_for_every_model():
    assert tuple(DIGITS) == tuple(MNIST) == MODELS


@pytest.mark.parametrize("recipes", [DIGITS, MNIST])
def test_the_documentation_states_the_hyper_parameters_that_are_used(recipes):
    page = (Path(__file__).parents[3] / "docs/systems/param-server-accuracy.md").read_text()
    assert "\n".join(recipe_table(recipes)) in page
