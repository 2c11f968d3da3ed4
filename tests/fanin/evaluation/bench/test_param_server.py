"""``fanin bench ps``: what is measured of a run, its limits, and that a slower server misses them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import param_server, param_server_models, param_server_sweeps
from fanin.evaluation.models.rdma_wild import PAPER
from fanin.param_server.golden import Tally

UPDATES = param_server.WORKERS * param_server.GRADIENTS_PER_WORKER["lr"]


class FakeCosim:
    """``intervals`` are when the server's link was occupied."""

    period_ps = 4000

    def __init__(self, *intervals, lost=0):
        self.intervals, self.lost = np.array(intervals, np.uint64), lost

    def run(self, job, learner, *, link):
        assert (learner.parameters, learner.batches, job.workers) == (7850, 8, 15)
        tally = Tally(UPDATES, UPDATES - self.lost, self.lost, 0)
        occupied = [None] * param_server.WORKERS + [self.intervals]
        return SimpleNamespace(
            outcome=SimpleNamespace(tally=tally),
            updates=[None] * UPDATES,
            raw=SimpleNamespace(occupied=occupied),
        )


def test_answers_before_and_behind_the_rows_do_not_count_and_pauses_do():
    words = UPDATES * param_server.Case("lr").sizes.words
    whole = param_server.busy(
        FakeCosim([3, 4], [10, 10 + words], [9 + 2 * words, 10 + 2 * words]), param_server.Case("lr")
    )
    assert (whole.value, whole.ok) == (100, True)
    paused = param_server.busy(FakeCosim([0, 100], [5000, 5000 + words]), param_server.Case("lr"))
    assert paused.value == pytest.approx(100 * words / (words + 5000))
    assert not paused.ok


def test_a_paced_link_is_compared_with_what_it_can_carry():
    row = 64 * (1 + 491 + 1)
    packets = 8  # of 4096 bytes
    seconds = UPDATES * (8 * row + packets * 8 * (8 + 54 + 4 + 4 + 12)) / 100e9
    result = param_server.paced(
        FakeCosim([0, round(seconds / 4e-9)]), param_server.Case("lr", param_server.PACED_LINK)
    )
    assert result.value == pytest.approx(100, abs=0.2)


def test_a_lost_gradient_is_no_measurement():
    with pytest.raises(AssertionError):
        param_server.busy(FakeCosim([0, 60_000], lost=1), param_server.Case("lr"))


def test_a_missed_limit_is_an_exit_status(capsys, monkeypatch):
    words = UPDATES * param_server.Case("lr").sizes.words
    slow = FakeCosim([0, 1000], [5000, 5000 + words])
    monkeypatch.setattr(param_server, "ParamServerCosim", lambda workers, clock_mhz: slow)
    monkeypatch.setattr(param_server, "MODEL_VALUES", {"lr": 7850})
    monkeypatch.setattr(param_server, "parts", lambda config: [])
    assert main(["bench", "ps", "--json"]) == 1
    assert not any(row["ok"] for row in json.loads(capsys.readouterr().out)["figures"][:1])


@pytest.mark.slow
def test_the_papers_tables_are_printed_and_their_fits_named(monkeypatch):
    """Of lr alone: the others take longer."""
    monkeypatch.setattr(param_server_models, "PAPER", {"lr": PAPER["lr"]})
    found = {result.name: result for result in param_server_models.measure()}
    steady, one_server = (
        {kind: found[f"table 1: {name}: lr, {kind}"] for kind in ("sync", "wild")}
        for name in ("per model, steady", "one server, like fcnn")
    )
    assert steady["sync"].value == pytest.approx(3.10)
    assert "fitted" in steady["sync"].note
    assert "fitted" not in steady["wild"].note + one_server["sync"].note
    assert "fitted" in one_server["wild"].note
    shares = [found[f"server: lr, wild, {kind}"].value for kind in ("update", "push", "idle")]
    assert sum(shares) == pytest.approx(100)
    assert found["server: lr, wild, at work while workers wait"].value > 95
    for place, least in (("cluster", 1.05), ("design", 2.0)):
        assert found[f"pushes: lr, {place}, behind a scan, broadcast over barter"].value > least
    assert found["figure 1: wait, TCP over RDMA"].value > 1


def test_sweeps_have_both_algorithms_at_each_value(monkeypatch):
    for name in ("BATCHES", "SIZES"):
        monkeypatch.setattr(param_server_sweeps, name, ())
    monkeypatch.setattr(param_server_sweeps, "WORKERS", (1, 4))
    monkeypatch.setattr(param_server_sweeps, "STRAGGLERS", (1, 8))
    found = {result.name: result.value for result in param_server_sweeps.measure()}
    values = {"workers": (1, 4), "stragglers": (1, 8)}
    names = {
        f"sweep of {what}: {algorithm}, {value}"
        for what, those in values.items()
        for value in those
        for algorithm in ("wild", "sync")
    }
    assert set(found) == names
    assert found["sweep of workers: sync, 1"] == pytest.approx(found["sweep of workers: wild, 1"])
    assert found["sweep of workers: wild, 1"] < 1
    assert 2 < found["sweep of workers: wild, 4"] < 4
    assert found["sweep of stragglers: sync, 8"] < 0.8 * found["sweep of stragglers: wild, 8"]
